"""Files of a commit that were removed, and files that must not be changed."""

from lab import Lab

WRITER = """
    from marin_pipe import Artifact, StepContext, step

    class Text(Artifact):
        pass

    @step
    def write(*, ctx: StepContext) -> Text:
        (ctx.output / "text.txt").write_text("text")
        return Text()
"""


def test_a_target_whose_files_are_gone_is_corrupt_and_not_cached(lab: Lab) -> None:
    exp = lab.module(WRITER)
    target = exp.write().named("write")
    lab.run(target)
    (lab.output(target) / "text.txt").unlink()
    assert lab.actions(target) == {"write": "blocked"}
    end = lab.run(target)["write"]
    assert (end.status, lab.exit_code) == ("failed", 5)
    assert end.failure is not None
    assert "'text.txt' is missing" in end.failure.message
    assert lab.statuses(target, selection={"force": "write"}) == {"write": "built"}


def test_committed_files_cannot_be_written_by_accident(lab: Lab) -> None:
    exp = lab.module(WRITER)
    target = exp.write().named("write")
    lab.run(target)
    assert (lab.output(target) / "text.txt").stat().st_mode & 0o222 == 0
