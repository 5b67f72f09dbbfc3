from pathlib import Path

import pytest

from openmemory.config.settings import Settings, keys, load
from openmemory.errors import SetupError


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
        ({"OPENMEMORY_LLM_PROVIDER": "groq"}, "llm.model: is required with llm.provider"),
    ],
)
def test_an_environment_that_cannot_be_used_is_refused_by_variable(environ: dict[str, str], message: str):
    with pytest.raises(SetupError) as failure:
        load(environ=environ)
    assert message in failure.value.message


@pytest.mark.parametrize("name", ["OPENMEMORY_FOO", "OPENMEMORY_TEAM_FOLDER"])
def test_a_variable_that_resembles_no_setting_is_a_warning(name: str):
    settings = load(environ={name: "1"})
    assert settings.warnings() == [f"{name} is not a setting and has no effect; `openmemory config` lists all"]
    assert load(environ={"OPENMEMORY_PORT": "1"}).warnings() == []


OAUTH = {"OPENMEMORY_OAUTH_ISSUER": "https://as.example.com", "OPENMEMORY_OAUTH_RESOURCE": "https://memory.example.com"}


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OPENMEMORY_OAUTH_RESOURCE": ""}, "OPENMEMORY_OAUTH_RESOURCE: is required with oauth.issuer"),
        ({"OPENMEMORY_OAUTH_ISSUER": ""}, "OPENMEMORY_OAUTH_RESOURCE: must be empty without oauth.issuer"),
        ({"OPENMEMORY_OAUTH_ISSUER": "http://as.example.com"}, "OPENMEMORY_OAUTH_ISSUER: must begin with https://"),
        ({"OPENMEMORY_OAUTH_ISSUER": "as.example.com"}, "OPENMEMORY_OAUTH_ISSUER: must be a URL such as"),
        (
            {"OPENMEMORY_OAUTH_ISSUER": "https://as.example.com?x"},
            "OPENMEMORY_OAUTH_ISSUER: must be a URL without query",
        ),
        (
            {"OPENMEMORY_OAUTH_RESOURCE": "https://u:hush@h"},
            "OPENMEMORY_OAUTH_RESOURCE: must not contain a user or password",
        ),
        ({"OPENMEMORY_OAUTH_JWKS_URL": "/jwks"}, "OPENMEMORY_OAUTH_JWKS_URL: must be a URL such as"),
        (
            {"OPENMEMORY_OAUTH_ALGORITHMS": "ES256,HS256"},
            "OPENMEMORY_OAUTH_ALGORITHMS: 'HS256' must be one of ES256,",
        ),
        ({"OPENMEMORY_OAUTH_ALGORITHMS": "none"}, "OPENMEMORY_OAUTH_ALGORITHMS: 'none' must be one of ES256,"),
        ({"OPENMEMORY_OAUTH_ALGORITHMS": "[]"}, "OPENMEMORY_OAUTH_ALGORITHMS: Tuple should have at least 1 item"),
        ({"OPENMEMORY_OAUTH_SCOPE_PREFIX": "my memory:"}, "OPENMEMORY_OAUTH_SCOPE_PREFIX: String should match pattern"),
        ({"OPENMEMORY_OAUTH_LEEWAY": "3600"}, "OPENMEMORY_OAUTH_LEEWAY: Input should be less than or equal to 600"),
        ({"OPENMEMORY_EGRESS_ALLOW": "10.0.0.1/8"}, "OPENMEMORY_EGRESS_ALLOW: 10.0.0.1/8 has host bits set"),
        ({"OPENMEMORY_EGRESS_ALLOW": "http://x"}, "OPENMEMORY_EGRESS_ALLOW: 'http://x' is a URL; name its host"),
    ],
)
def test_settings_of_oauth_that_do_not_go_together_are_refused_by_key(environ: dict[str, str], message: str):
    with pytest.raises(SetupError) as failure:
        load(environ=OAUTH | environ)
    assert failure.value.message.startswith(f"environment: {message}")
    assert "hush" not in failure.value.message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        ({"OPENMEMORY_OAUTH_CLIENT_ID": "page"}, "OPENMEMORY_OAUTH_CLIENT_ID: must be empty without oauth.issuer"),
        (
            OAUTH | {"OPENMEMORY_OAUTH_CLIENT_SECRET": "hush"},
            "OPENMEMORY_OAUTH_CLIENT_SECRET: must be empty without oauth.client_id",
        ),
        (OAUTH | {"OPENMEMORY_OAUTH_CLIENT_ID": "päge"}, "OPENMEMORY_OAUTH_CLIENT_ID: String should match pattern"),
    ],
)
def test_a_client_of_the_page_goes_with_its_issuer(environ: dict[str, str], message: str):
    with pytest.raises(SetupError) as failure:
        load(environ=environ)
    assert failure.value.message.startswith(f"environment: {message}")
    assert "hush" not in failure.value.message


def test_the_secret_of_the_pages_client_is_masked():
    settings = load(
        environ=OAUTH | {"OPENMEMORY_OAUTH_CLIENT_ID": "page", "OPENMEMORY_OAUTH_CLIENT_SECRET": "hush"}, inherit=False
    )
    assert settings.masked(("oauth", "client_secret")) == "********"
    assert "hush" not in repr(settings)


def test_a_resource_that_is_missing_altogether_is_asked_for_by_key():
    with pytest.raises(SetupError, match=r"^oauth\.resource: is required with oauth\.issuer$"):
        load(environ={"OPENMEMORY_OAUTH_ISSUER": "https://as.example.com"})


def test_a_resource_is_kept_without_its_last_slash_and_an_issuer_exactly_as_it_is():
    settings = load(environ={name: url + "/" for name, url in OAUTH.items()}).oauth
    assert (settings.issuer, settings.resource) == ("https://as.example.com/", "https://memory.example.com")


@pytest.mark.parametrize("issuer", ["http://localhost:8080/realms/one", "http://127.0.0.1:1", "http://[::1]:1"])
def test_an_issuer_on_this_machine_needs_no_tls(issuer: str):
    assert load(environ=OAUTH | {"OPENMEMORY_OAUTH_ISSUER": issuer}).oauth.issuer == issuer


def test_a_named_file_must_exist(tmp_path: Path):
    with pytest.raises(SetupError, match="no such file"):
        load(tmp_path / "none.toml", environ={})


def test_lists_may_be_comma_separated_or_json():
    for text in ("a.example, b.example", '["a.example", "b.example"]'):
        settings = load(environ={"OPENMEMORY_HTTP_ALLOWED_HOSTS": text})
        assert settings.http.allowed_hosts == ("a.example", "b.example")


def test_a_key_never_appears_in_the_text_of_settings():
    settings = load(
        environ={
            "OPENMEMORY_ACCESS_API_KEY": "hush-Vd7-kq2Xw9-pLr4mZt8n",
            "OPENMEMORY_DATABASE_URL": "postgresql://u:hush@h/d",
        }
    )
    assert "hush" not in repr(settings)
    assert "hush" not in settings.model_dump_json()


def test_every_key_has_a_line_that_says_what_it_does():
    assert all(info.description for info in keys().values())
