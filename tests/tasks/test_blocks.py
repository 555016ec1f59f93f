"""Steps are split at the same points when training resumes."""

from hypothesis import given
from hypothesis import strategies as st

from mislabel.tasks.blocks import BLOCK, blocks, stretches


@given(start=st.integers(0, 5000), more=st.integers(0, 5000), numbers=st.integers(1, 10**6))
def test_blocks_cover_the_steps_and_end_at_multiples(start: int, more: int, numbers: int) -> None:
    found = []
    for stretch in stretches(start, start + more, numbers):
        for block, at in blocks(stretch):
            assert stretch[at] == block
            found.append(block)
    assert [step for block in found for step in block] == list(range(start, start + more))
    assert all(block.stop % BLOCK == 0 for block in found[:-1])
    assert all(block.start % BLOCK == 0 for block in found[1:])


@given(numbers=st.integers(1, 10**6))
def test_a_stretch_draws_few_numbers_but_at_least_a_block(numbers: int) -> None:
    length = len(next(stretches(0, 10**7, numbers)))
    assert length % BLOCK == 0
    assert length == BLOCK or length * numbers <= 2**15
