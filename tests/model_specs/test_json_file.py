"""Every mistake in a JSON file is one sentence that names file and key."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RunFailedError, UsageError
from infinity_v3.model_specs.json_file import MAX_JSON_BYTES, JsonObject, read_object, shown


def write(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "config.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("", "expected JSON"),
        ("{", "expected JSON"),
        ('{"a": 1,}', "expected JSON"),
        ("[]", "expected a JSON object, found a list of 0"),
        ("7", "expected a JSON object, found 7"),
        ('{"a": 1, "a": 1}', "a: the key is there twice"),
        ('{"x": {"deep": 1, "deep": 2}}', "deep: the key is there twice"),
        ("[" * 100_000, "nested too deeply"),
        (b'{"a": "\xff"}', "expected UTF-8, found byte 7"),
        ('{"a": ' + "9" * 5000 + "}", "expected JSON"),
    ],
)
def test_broken_file_is_refused_by_name(tmp_path: Path, text: str | bytes, fragment: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(UsageError) as caught:
        read_object(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: ")
    assert fragment in message
    assert "\n" not in message
    assert caught.value.exit_code == 2


def test_absent_file_and_folder_in_its_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("absent.json", "folder"):
        with pytest.raises(UsageError, match="expected a file, found none"):
            read_object(tmp_path / name)


def test_unreadable_file_is_a_failure_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    file = write(tmp_path, "{}")
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(RunFailedError, match=r"config.json: can't be read: Permission denied"):
        read_object(file)


def test_file_above_64_mib_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path, "{}")
    with file.open("r+b") as stream:
        stream.truncate(MAX_JSON_BYTES + 1)
    with pytest.raises(UsageError, match="expected at most 67108864 bytes"):
        read_object(file)


def test_values_are_typed_and_null_counts_as_absent(tmp_path: Path) -> None:
    config = read_object(write(tmp_path, '{"n": 3, "t": "x", "f": true, "l": ["a"], "z": null}'))
    assert config.integer("n", minimum=0, maximum=3) == 3
    assert config.text("t") == "x"
    assert config.flag("f", default=False) is True
    assert config.texts("l") == ("a",)
    for key in ("z", "absent"):
        assert not config.has(key)
        assert config.integer(key, minimum=0, maximum=1) is None
        assert config.text(key) is None
        assert config.texts(key) == ()
        assert config.child(key) is None
        assert config.children(key) == ()
        assert config.flag(key, default=True) is True


@pytest.mark.parametrize("value", [True, 1.0, "1", -1, 11, [], {}, 10**70])
def test_integer_refuses_other_values(value: object) -> None:
    config = JsonObject(file=Path("config.json"), values={"n": value}, keys=("top", "[2]"))
    with pytest.raises(UsageError, match=r"top\[2\].n: expected a whole number from 0 to 10"):
        config.integer("n", minimum=0, maximum=10)


@pytest.mark.parametrize("value", [1, ["a"], "\ud800"])
def test_text_refuses_other_values(value: object) -> None:
    config = JsonObject(file=Path("config.json"), values={"t": value})
    with pytest.raises(UsageError, match=r"config.json: t: expected a text, found"):
        config.text("t")


@pytest.mark.parametrize("value", ["a", [1], [["a"]], ["\udfff"]])
def test_texts_refuses_other_values(value: object) -> None:
    config = JsonObject(file=Path("config.json"), values={"l": value})
    with pytest.raises(UsageError, match="l: expected a list of texts, found"):
        config.texts("l")


def test_nested_objects_refuse_other_values() -> None:
    config = JsonObject(file=Path("config.json"), values={"o": 1, "l": [{}, 5], "s": "x"})
    with pytest.raises(UsageError, match="o: expected an object, found 1"):
        config.child("o")
    with pytest.raises(UsageError, match=r"l\[1\]: expected an object, found 5"):
        config.children("l")
    with pytest.raises(UsageError, match="s: expected a list of objects"):
        config.children("s")
    with pytest.raises(UsageError, match="s: expected true or false"):
        config.flag("s", default=False)


def test_quoted_values_are_short_and_printable() -> None:
    assert shown("a\nb") == '"a\\nb"'
    assert shown("\ud800\u0000é").isascii()
    assert len(shown("x" * 10_000)) < 80
    assert shown(10**4000) == "a larger number"
    assert shown(None) == "nothing"
