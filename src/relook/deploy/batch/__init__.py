"""Predictions of many images without labels: reading, predicting, writing."""
