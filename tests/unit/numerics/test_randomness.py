import numpy as np
import pytest
from scipy import stats
from tests.support import refused

from relook.numerics.randomness import Stream, philox, uniforms

# The known answers that the authors of Philox publish with Random123 (philox4x32, 10 rounds).
KNOWN = [
    ([0] * 4, (0, 0), [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    (
        [0xFFFFFFFF] * 4,
        (0xFFFFFFFF, 0xFFFFFFFF),
        [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD],
    ),
    (
        [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
        (0xA4093822, 0x299F31D0),
        [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
    ),
]


@pytest.mark.parametrize(("counter", "key", "answer"), KNOWN)
def test_philox_gives_the_published_answers(
    counter: list[int], key: tuple[int, int], answer: list[int]
) -> None:
    assert philox(np.array(counter, dtype=np.uint64), key).tolist() == answer


def test_each_coordinate_changes_the_number() -> None:
    numbers = {
        float(uniforms(0)),
        float(uniforms(1)),
        float(uniforms(1 << 40)),
        float(uniforms(0, image=1)),
        float(uniforms(0, view=1)),
        float(uniforms(0, slot=1)),
        float(uniforms(0, stream=Stream.POOL)),
    }
    assert len(numbers) == 7


def test_a_number_does_not_depend_on_its_neighbours() -> None:
    whole = uniforms(3, image=np.arange(100), view=np.arange(5)[:, None], slot=2)
    assert whole.shape == (5, 100)
    assert float(uniforms(3, image=41, view=4, slot=2)) == whole[4, 41]


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_numbers_along_every_axis_are_uniform(axis: int) -> None:
    image, view, slot = (np.arange(20_000) * (i == axis) for i in range(3))
    numbers = uniforms(7, image=image, view=view, slot=slot)
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, None, True])
def test_a_bad_seed_is_refused(seed: object) -> None:
    refused("expected a seed", uniforms, seed)
