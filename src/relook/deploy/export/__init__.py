"""`relook.export`: one file that holds views, network, average and temperature."""

from relook.deploy.export.model_file import export

__all__ = ["export"]
