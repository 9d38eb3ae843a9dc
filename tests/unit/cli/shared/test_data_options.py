import pytest
from tests.support import refused

from relook.cli.shared.options import pixels


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, None), ("224", (224, 224)), ("192x256", (192, 256)), (" 24 × 20 ", (24, 20))],
)
def test_a_size_is_one_side_or_two(text: str | None, size: tuple[int, int] | None) -> None:
    assert pixels(text) == size


@pytest.mark.parametrize("text", ["", "x", "224x", "22.4", "-8", "1x2x3", "999999", "two"])
def test_other_sizes_are_refused(text: str) -> None:
    refused("--size: expected pixels like 224 or 192x256", pixels, text)
