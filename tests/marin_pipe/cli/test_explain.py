from lab import Lab
from lab_steps import node
from shell import Shell


def steps(label: str) -> dict:
    base = node(label).named("base")
    return {"top": node("top", (node("mid", (base,)).named("mid"),)).named("top")}


def test_explain_prints_what_the_key_is_made_of_and_what_changed(lab: Lab, shell: Shell) -> None:
    lab.run(steps("a"))
    top = steps("b")["top"]
    lines = shell("explain", "top", steps=steps("b")).lines
    assert lines[0] == f"top  ({top.directory})"
    assert lines[1] == "  run: because of mid"
    assert f"  key {top.key} is made of:" in lines
    assert '    label = "top"' in lines
    assert lines[-2:] == [
        f"  against {steps('a')['top'].directory}, the nearest earlier output of that name:",
        '    parts[0] -> mid -> parts[0] -> base -> label: "a" -> "b"',
    ]


def test_explain_as_json_and_of_a_stored_output(lab: Lab, shell: Shell) -> None:
    lab.run(steps("a"))
    lab.run(steps("b"))
    key = steps("b")["top"].key
    told = shell("explain", key[:12], "--json").json
    assert (told["action"], told["key"]) == ("stored", key)
    assert [change["new"] for change in told["changes"]] == ['"b"']
    assert shell("explain", "top").code == 2
    assert shell("explain", "unheard-of").code == 1


def test_diff_prints_what_differs_by_section(lab: Lab, shell: Shell) -> None:
    lab.run(steps("a"))
    lab.run(steps("bb"))
    old, new = steps("a")["top"], steps("bb")["top"]
    lines = shell("diff", old.directory, new.key[:8]).lines
    assert lines[0] == f"{old.directory} -> {new.directory}"
    assert '  parts[0] -> mid -> parts[0] -> base -> label: "a" -> "bb"' in lines
    assert "files:" in lines
    rows = shell("diff", old.directory, new.directory, "--json").json["differences"]
    assert {"section": "result", "what": "result", "old": '{"length": 11}', "new": '{"length": 12}'} in rows
    assert shell("diff", old.directory, old.directory).lines[-1] == "no difference"
