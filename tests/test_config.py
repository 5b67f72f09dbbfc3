from pathlib import Path

import pytest

from app.config import Settings, keys, load
from app.errors import SetupError


def test_without_anything_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert load(environ={}) == Settings()


def test_flags_go_before_the_environment_and_that_before_the_file(tmp_path: Path):
    file = tmp_path / "openmemory.toml"
    file.write_text('port = 1001\nhost = "127.0.0.2"\n[search]\nlimit = 7\n')
    settings = load(
        file, environ={"OPENMEMORY_PORT": "1002", "OPENMEMORY_HOST": "::1"}, flags={"port": 1003, "host": None}
    )
    assert (settings.port, settings.host, settings.search.limit) == (1003, "::1", 7)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("prot = 1", "unknown key 'prot'; did you mean 'port'"),
        ("[qdrant]\nulr = 'x'", "unknown key 'qdrant.ulr'; did you mean 'qdrant.url'"),
        ("port = 'x'", "port: Input should be a valid integer"),
        ("port = 70000", "port: Input should be less than or equal to 65535"),
        ("[access]\ndefault = 'all'", "access.default: Input should be 'user' or 'own_app'"),
        ("port = ", "not valid TOML"),
        ("search = 3", "unknown key 'search'; did you mean 'search.limit'"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_key_and_file(tmp_path: Path, content: str, message: str):
    file = tmp_path / "openmemory.toml"
    file.write_text(content)
    with pytest.raises(SetupError) as failure:
        load(file, environ={})
    assert message in failure.value.message
    assert str(file) in failure.value.message
    assert "\n" not in failure.value.message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OPENMEMORY_PROT": "1"}, "unknown setting OPENMEMORY_PROT; did you mean 'OPENMEMORY_PORT'"),
        ({"OPENMEMORY_PORT": "many"}, "OPENMEMORY_PORT: Input should be a valid integer"),
        ({"OPENMEMORY_QDRANT_URL": "localhost:6333"}, "OPENMEMORY_QDRANT_URL"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_by_variable(environ: dict[str, str], message: str):
    with pytest.raises(SetupError) as failure:
        load(environ=environ)
    assert message in failure.value.message


def test_a_named_file_must_exist(tmp_path: Path):
    with pytest.raises(SetupError, match="no such file"):
        load(tmp_path / "none.toml", environ={})


def test_lists_may_be_comma_separated_or_json():
    for text in ("a.example, b.example", '["a.example", "b.example"]'):
        settings = load(environ={"OPENMEMORY_HTTP_ALLOWED_HOSTS": text})
        assert settings.http.allowed_hosts == ("a.example", "b.example")


def test_a_key_never_appears_in_the_text_of_settings():
    settings = load(
        environ={"OPENMEMORY_ACCESS_API_KEY": "hush-hush", "OPENMEMORY_DATABASE_URL": "postgresql://u:hush@h/d"}
    )
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()


def test_every_key_has_a_line_that_says_what_it_does():
    assert all(info.description for info in keys().values())
