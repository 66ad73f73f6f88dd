"""Flag over variable over project file over user file; mistakes are named with their place."""

import hashlib
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from stockade import paths as trusting
from stockade.bots.file import read_bot
from stockade.cli import begin
from stockade.core.errors import UsageError
from stockade.core.settings import FrontSettings, RunSettings, fields
from stockade.runtime import settings
from stockade.runtime.policy import make_policy
from stockade.runtime.settings import load
from stockade.runtime.sources import config_file, plain_settings
from stockade.runtime.spec import HookCommand, RunSpec, spec_of


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def made(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text)
    return path


def trust(path: Path) -> None:
    line = f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.resolve()}\n"
    made(trusting.trusted_file().parent, "trusted", line)


def loaded(tmp_path: Path, flags: dict[str, Any] | None = None, **environ: str) -> settings.Settings:
    return load(flags or {}, environ, tmp_path / "project", tmp_path / "config.toml")


def test_nothing_set_gives_the_defaults(tmp_path: Path) -> None:
    found = loaded(tmp_path)
    assert (found.options.model, found.options.max_turns, found.front.quiet, found.notes) == ("auto", None, False, ())


def test_each_place_goes_before_the_next(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", 'model = "user/m"\nmax_turns = 1\ntimeout = 1\nseed = 1\n')
    trust(made(tmp_path / "project", "stockade.toml", "max_turns = 2\ntimeout = 2\nseed = 2\n"))
    options = loaded(tmp_path, {"seed": 4}, STOCKADE_TIMEOUT="3", STOCKADE_SEED="3").options
    assert (options.model, options.max_turns, options.timeout, options.seed) == ("user/m", 2, 3.0, 4)


def test_what_any_place_hides_is_hidden(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", 'redact = ["MINE"]\n')
    options = loaded(tmp_path, {"redact": ("GIVEN", "MINE")}, STOCKADE_REDACT="SAID").options
    assert options.redact == ("MINE", "SAID", "GIVEN")
    assert loaded(tmp_path).options.redact == ("MINE",)


COMMAND = '[[hooks]]\nname = "guard"\non = "before_action"\ncommand = ["sh", "-c", "true"]\ntimeout = 5\n'
GUARD = HookCommand(name="guard", on="before_action", command=("sh", "-c", "true"), timeout=5)


def test_a_hook_may_be_a_command_and_a_flag_does_not_take_it_away(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", COMMAND)
    assert loaded(tmp_path).options.hooks == (GUARD,)
    assert loaded(tmp_path, {"option": ("hooks=mine",)}).options.hooks == (GUARD, "mine")


def test_a_command_of_a_project_file_that_is_not_trusted_is_no_hook(tmp_path: Path) -> None:
    path = made(tmp_path / "project", "stockade.toml", COMMAND)
    assert loaded(tmp_path).options.hooks == ()
    trust(path)
    assert loaded(tmp_path).options.hooks == (GUARD,)


@pytest.mark.parametrize("wrong", ['"x"', '[{name = "x"}]', '[{name = "x", on = "always", command = ["x"]}]', "[5]"])
def test_what_is_no_hook_is_refused_by_its_key(tmp_path: Path, wrong: str) -> None:
    made(tmp_path, "config.toml", f"hooks = {wrong}\n")
    with pytest.raises(UsageError, match=r"hooks: it has to be a list of names, or tables with name, on, command"):
        loaded(tmp_path)


def test_a_project_file_that_is_not_trusted_is_not_read_and_that_is_said(tmp_path: Path) -> None:
    path = made(tmp_path / "project", "stockade.toml", 'model = "evil/m"\n')
    found = loaded(tmp_path)
    assert found.options.model == "auto"
    (note,) = found.notes
    assert note == f"{path} was not read: it is not trusted as it stands (look at it: stockade trust {path})"


def test_a_trusted_file_that_was_changed_is_not_trusted_any_more(tmp_path: Path) -> None:
    path = made(tmp_path / "project", "stockade.toml", 'model = "a/m"\n')
    trust(path)
    assert loaded(tmp_path).options.model == "a/m"
    path.write_text('model = "b/m"\n')
    assert loaded(tmp_path).options.model == "auto"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("check = ' '", "check: the command is empty, and would always pass"),
        ("modle = 'x'", "there is no setting 'modle'"),
        ("max_turns = 'many'", "max_turns: 'many' is not a whole number of at least 0"),
        ("max_turns = -1", "max_turns: -1 is not a whole number of at least 0"),
        ("top_p = 2", "top_p: 2 is not a number from 0 to 1"),
        ("folder = 'one'", "folder: it has to be a list of texts"),
        ("folder = [1]", "folder: it has to be a list of texts"),
        ("quiet = 1", "quiet: 1 is not true or false"),
        ("json = 1", "json: 1 is not true or false"),
        ("model = 1", "model: 1 is not a text"),
        ("approve = 'yes'", "approve: 'yes' is not one of never, ask, rules, rules=FILE"),
        ("split_mode = 'yes'", "split_mode: 'yes' is not one of none, layer, row"),
        ("tensor_split = 'x'", "tensor_split: 'x' is not numbers with commas between"),
        ("net = 'maybe'", "net: 'maybe' is not understood (write none, open, or HOST[:PORT],@PRESET,CIDR,...)"),
        ("memory = '5'", "memory: 5 is 5 bytes: at least 8M"),
        ("memory = '0.4'", "memory: '0.4' is less than a byte"),
        ("disk = 'much'", "disk: not a size: 'much'"),
        ("processes = 1", "processes: 1 is too few: at least 8"),
        ("task = 'x'", "there is no setting 'task'"),
        ("[[", "is not TOML"),
    ],
)
def test_mistakes_in_a_file_name_file_and_key(tmp_path: Path, text: str, words: str) -> None:
    path = made(tmp_path, "config.toml", text)
    with pytest.raises(UsageError, match=r"config\.toml") as caught:
        loaded(tmp_path)
    assert words in caught.value.message
    assert str(path) in caught.value.message


@pytest.mark.parametrize(("key", "value"), [("memory", "0"), ("memory", "8M"), ("processes", 0), ("processes", 8)])
def test_what_is_enough_and_what_is_no_limit(tmp_path: Path, key: str, value: object) -> None:
    assert getattr(loaded(tmp_path, {key: value}).options, key) == value


def test_the_nearest_key_is_offered(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", "max_turn = 3")
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path)
    assert caught.value.hint == "did you mean max_turns?"


@pytest.mark.parametrize(
    ("pair", "hint"),
    [("max-turn=3", "did you mean max_turns?"), ("approve=alk", "did you mean ask?"),
     ("qqq=3", "stockade help settings lists them")],
)  # fmt: skip
def test_the_nearest_is_offered_of_a_pair(tmp_path: Path, pair: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, {"option": (pair,)})
    assert caught.value.hint == hint


def test_files_that_cannot_be_configuration(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        loaded(tmp_path)
    path.write_bytes(b"#" * (trusting.MAX_FILE_BYTES + 1))
    with pytest.raises(UsageError, match="larger than"):
        loaded(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        loaded(tmp_path)


def test_lists_in_variables_come_by_commas_or_lines(tmp_path: Path) -> None:
    assert loaded(tmp_path, STOCKADE_FOLDER="a, b:ro").options.folder == ("a", "b:ro")
    assert loaded(tmp_path, STOCKADE_ENV="A=1,2\nB=3").options.env == ("A=1,2", "B=3")


def test_a_wrong_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"STOCKADE_MAX_TURNS: .* is not a whole number of at least 0"):
        loaded(tmp_path, STOCKADE_MAX_TURNS="many")


def test_a_variable_that_is_no_setting_is_said_with_the_nearest(tmp_path: Path) -> None:
    (note,) = loaded(tmp_path, STOCKADE_MAX_TURN="3", STOCKADE_MODELS="/models").notes
    assert note == "STOCKADE_MAX_TURN is not a setting and was not read: did you mean STOCKADE_MAX_TURNS?"


def test_what_excludes_each_other(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--apply and --discard exclude each other"):
        loaded(tmp_path, {"apply": True, "discard": True})
    front = loaded(tmp_path, {"discard": True}, STOCKADE_APPLY="1").front
    assert (front.apply, front.discard) == (False, True)


def test_a_flag_that_is_no_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--folder: .* is not UTF-8"):
        loaded(tmp_path, {"folder": ("a\udcff",)})


def test_a_flag_out_of_range_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"--max-turns: .* is not a whole number of at least 0"):
        loaded(tmp_path, {"max_turns": -3})


def test_sampling_and_loading_have_one_name_everywhere(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", 'top_p = 0.5\nmin_p = 0.1\nmlock = true\ncache_type_k = "q8_0"\n')
    options = loaded(tmp_path, {"top_k": 7, "mmap": False}, STOCKADE_TOP_P="0.6", STOCKADE_MIROSTAT_MODE="2").options
    sampling = options.sampling(local=True)
    assert (sampling.top_p, sampling.min_p, sampling.top_k, sampling.mirostat_mode) == (0.6, 0.1, 7, 2)
    assert options.load_more() == {"mmap": False, "mlock": True, "cache_type_k": "q8_0"}


def test_local_models_are_greedy_and_bounded_unless_told_otherwise(tmp_path: Path) -> None:
    plain = loaded(tmp_path).options
    assert (plain.sampling(local=True).temperature, plain.sampling(local=True).max_tokens) == (0.0, 1024)
    assert (plain.sampling(local=False).temperature, plain.sampling(local=False).max_tokens) == (None, None)
    told = loaded(tmp_path, {"temperature": 0.7, "answer_tokens": 99, "max_tokens": 5}).options
    assert (told.sampling(local=True).temperature, told.sampling(local=True).max_tokens) == (0.7, 99)
    assert loaded(tmp_path, {"mirostat_mode": 1}).options.sampling(local=True).temperature is None


LLAMA = {
    "LLAMA_MODEL_PATH": "/models/m.gguf", "LLAMA_N_CTX": "4096", "LLAMA_N_GPU_LAYERS": "-1", "LLAMA_SEED": "7",
    "LLAMA_TEMPERATURE": "0.9", "LLAMA_TOP_K": "40", "LLAMA_TYPE_K": "8", "LLAMA_USE_MLOCK": "true",
    "LLAMA_LAST_N_TOKENS_SIZE": "64", "LLAMA_MAX_TOKENS": "300", "LLAMA_SPLIT_MODE": "1", "LLAMA_EXIT_TIMEOUT": "10.0",
    "LLAMA_N_THREADS": "", "LLAMA_ARG_CTX_SIZE": "99", "LLAMA_API_KEY": "k",
}  # fmt: skip


def test_the_variables_of_pocket_asi_are_understood(tmp_path: Path) -> None:
    options = loaded(tmp_path, {}, **LLAMA).options
    assert (options.model, options.ctx_size, options.gpu_layers) == ("gguf//models/m.gguf", 4096, -1)
    assert (options.seed, options.temperature, options.top_k) == (7, 0.9, 40)
    assert (options.cache_type_k, options.mlock, options.split_mode) == ("q8_0", True, "layer")
    assert (options.repeat_last_n, options.answer_tokens, options.command_timeout) == (64, 300, 10.0)
    assert options.threads is None


def test_ours_go_before_theirs_and_theirs_before_files(tmp_path: Path) -> None:
    made(tmp_path, "config.toml", 'model = "user/m"\nseed = 1\ntop_k = 1\n')
    options = loaded(tmp_path, {"top_k": 3}, **LLAMA, STOCKADE_SEED="8").options
    assert (options.model, options.seed, options.top_k) == ("gguf//models/m.gguf", 8, 3)


@pytest.mark.parametrize("seed", ["-1", "4294967295"])
def test_their_random_seed_is_none_here(tmp_path: Path, seed: str) -> None:
    assert loaded(tmp_path, LLAMA_SEED=seed, LLAMA_MODEL_PATH="undefined").options.seed is None


@pytest.mark.parametrize(
    ("name", "text", "key", "value"),
    [
        ("N_CTX", "0", "ctx_size", None), ("MAX_TOKENS", "-1", "answer_tokens", None), ("TOP_K", "-1", "top_k", 0),
        ("N_THREADS", "0", "threads", None), ("NUMA", "False", "numa", None), ("NUMA", "True", "numa", "distribute"),
        ("NUMA", "2", "numa", "isolate"), ("N_CTX", "512", "ctx_size", 512), ("TOP_P", "0", "top_p", 0.0),
        ("N_BATCH", "1", "batch_size", 32), ("N_BATCH", "0", "batch_size", None), ("MAX_TOKENS", "0", "top_p", None),
        ("ROPE_FREQ_SCALE", "0.0", "rope_freq_scale", None), ("N_GPU_LAYERS", "all", "gpu_layers", -1),
        ("TENSOR_SPLIT", "undefined", "tensor_split", None), ("NUMA", "0", "numa", None),
        ("NUMA", "1", "numa", "distribute"),
    ],
)  # fmt: skip
def test_what_llama_cpp_takes_for_its_own_choice(tmp_path: Path, name: str, text: str, key: str, value: object) -> None:
    assert getattr(loaded(tmp_path, None, **{f"LLAMA_{name}": text}).options, key) == value


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("N_CTX", "abc", "LLAMA_N_CTX: 'abc' is not a whole number from 512 to 16777216"),
        ("REPEAT_PENALTY", "0", "LLAMA_REPEAT_PENALTY: '0' is not a number above 0, at most 10"),
        ("NUMA", "4", "LLAMA_NUMA: '4' is not one of distribute, isolate, numactl"),
        ("USE_MMAP", "maybe", "LLAMA_USE_MMAP: 'maybe' is not true or false"),
        ("TENSOR_SPLIT", "a", "LLAMA_TENSOR_SPLIT: 'a' is not numbers with commas between"),
    ],
)
def test_what_a_variable_may_be_is_said(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        loaded(tmp_path, None, **{f"LLAMA_{name}": text})


def test_a_typing_mistake_is_told(tmp_path: Path) -> None:
    others = {f"LLAMA_{name}": "x" for name in ("ARG_THREADS", "CACHE", "CPP_LIB", "CLOUD_API_KEY", "DEFAULT_GOAL")}
    found = loaded(tmp_path, None, LLAMA_N_CTXX="1", LLAMA_ZZZ="1", **others)
    assert found.notes == ("LLAMA_N_CTXX is not known: LLAMA_N_CTX is", "LLAMA_ZZZ is not known")


def test_what_has_no_effect_is_said(tmp_path: Path) -> None:
    found = loaded(tmp_path, LLAMA_VOCAB_ONLY="true", LLAMA_YARN_ORIG_CTX="1")
    assert found.notes == ("no effect here: LLAMA_VOCAB_ONLY, LLAMA_YARN_ORIG_CTX",)


@pytest.mark.parametrize(
    ("environ", "place"),
    [
        ({"LLAMA_N_CTX": "many"}, "LLAMA_N_CTX: "),
        ({"LLAMA_TYPE_K": "77"}, "LLAMA_TYPE_K: "),
        ({"STOCKADE_TOP_P": "1.5"}, "STOCKADE_TOP_P: "),
        ({"STOCKADE_MIROSTAT_MODE": "3"}, "STOCKADE_MIROSTAT_MODE: "),
        ({"STOCKADE_TENSOR_SPLIT": "a;b"}, "STOCKADE_TENSOR_SPLIT: "),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path: Path, environ: dict[str, str], place: str) -> None:
    with pytest.raises(UsageError, match=place) as caught:
        loaded(tmp_path, {}, **environ)
    assert "\n" not in str(caught.value)


def test_the_servers_of_a_folder_are_read_once_trusted(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    path = made(folder, ".mcp.json", '{"mcpServers": {}}')
    found = loaded(tmp_path, {"folder": (f"{folder}:ro",)})
    assert found.options.mcp == ()
    assert "stockade trust" in found.notes[0]
    trusting.trust(path, path.read_bytes())
    assert loaded(tmp_path, {"folder": (str(folder),)}).options.mcp == (str(path),)
    assert loaded(tmp_path, {"folder": (str(folder),), "mcp": ("none",)}).options.mcp == ()
    assert loaded(tmp_path, {"folder": (str(folder),), "mcp": ("a.json",)}).options.mcp == ("a.json", str(path))
    path.write_text('{"mcpServers": {"evil": {"command": "x"}}}')
    assert loaded(tmp_path, {"folder": (str(folder),)}).options.mcp == ()


ODD = ('""', '"x"', "-1", "0", "1", "9" * 20, "nan", "inf", "-inf", "1e400", "true", "[]", '["x"]', "[[1]]", "{a=1}",
       '"::"', '"a\\u0000b"', '"\\u202e"', '"[::1]:99999"', '"/dev/null"', f'"{"9" * 20}G"', f'"{"9" * 400}"', '"a=b"',
       '"="', "1979-05-27", f'"{"a" * 5000}"')  # fmt: skip


@pytest.mark.parametrize("key", [*fields(RunSettings), *fields(FrontSettings)])
def test_no_value_of_a_setting_breaks(tmp_path: Path, key: str) -> None:
    """Wherever it is set, and in the policy that is made of it: taken, or refused as a UsageError."""
    for value in ODD:
        path = made(tmp_path, "config.toml", f'prompt = "x"\n{key} = {value}\n')
        variable = {f"STOCKADE_{key.upper()}": value.strip('"').replace("\\u0000", "")}
        with suppress(UsageError):
            read_bot(path)
        path = made(tmp_path, "config.toml", f"{key} = {value}\n")
        with suppress(UsageError):
            make_policy(loaded(tmp_path).options, "overlay")
        with suppress(UsageError):
            make_policy(load({}, variable, tmp_path, tmp_path / "none").options, "overlay")
        with suppress(UsageError):
            make_policy(spec_of(tomllib.loads(path.read_text())), "overlay")


def test_flag_key_variable_and_schema_come_from_one_definition(tmp_path: Path) -> None:
    """Of a setting that is in the class: nothing else has to be written for it."""
    schema = RunSpec.model_json_schema()["properties"]
    offered = {name for command in (begin.run, begin.plan, begin.auto) for one in command.params for name in one.opts}
    for key, field in fields(RunSettings).items():
        assert schema[key]["description"] == field.setting.help
        if key not in ("api", "effort", "grammar", "loop_repeats", "score", "small_models", "streams"):  # by -o
            assert f"--{key.replace('_', '-')}" in offered, key
    set_ = load({"option": ("loop_repeats=3",)}, {"STOCKADE_MAX_TURNS": "7"}, tmp_path, tmp_path / "none").options
    assert (set_.loop_repeats, set_.max_turns) == (3, 7)
    assert {"objects", "granted"}.isdisjoint(schema)


SAID = st.sampled_from(("", "0", "1", "12", "-1", "1.5", "1e3", "512M", "lots", "none", "open", "pypi.org",
                        "auto", "docker", "x/y", "true", "a,b", "\u0664", " 7", "\x1b[2J"))  # fmt: skip
OF_FLAGS = st.dictionaries(
    st.sampled_from(("net", "memory", "disk", "sandbox", "processes", "command_timeout", "env", "folder", "redact")),
    SAID | st.integers(-2, 20) | st.floats(-1, 9) | st.lists(SAID, max_size=2).map(tuple), max_size=3,
)  # fmt: skip
OF_VARIABLES = st.dictionaries(
    st.sampled_from(("MODEL", "NET", "MEMORY", "PROCESSES", "COMMAND_TIMEOUT", "ENV", "REDACT", "PLAIN", "SEED", "NO")),
    SAID, max_size=3,
)  # fmt: skip
OF_FILE = st.sampled_from(("", "seed = 1", 'model = "a/b"', 'env = ["A=1"]', "timeout = 2", "timeout = 2.5",
                           "quiet = true", 'redact = ["A"]', "seed = -1"))  # fmt: skip


@given(OF_FLAGS, OF_VARIABLES, OF_FILE)
@tried(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_plain_is_the_same_merged(flags: dict[str, Any], variables: dict[str, str], text: str) -> None:
    made(config_file().parent, "config.toml", text)
    environ = {f"STOCKADE_{name}": value for name, value in variables.items()}
    found = plain_settings(flags, environ)
    if found is not None:
        options = load(flags, environ).options
        names = [name for name in fields(RunSettings) if hasattr(found, name)]
        assert [getattr(found, name) for name in names] == [getattr(options, name) for name in names]


def test_flags_variables_and_a_file_may_all_be_plain() -> None:
    made(config_file().parent, "config.toml", 'model = "openai/x"\nseed = 1\n')
    found = plain_settings({"memory": "1G", "processes": 20}, {"STOCKADE_SEED": "2", "HOME": "/"})
    assert found is not None
    assert (found.model, found.seed, found.memory, found.processes, found.net) == ("openai/x", 2, "1G", 20, "none")


def test_a_project_file_and_what_is_wrong_are_not_plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain_settings({"memory": "lots"}, {}) is None
    assert plain_settings({}, {"STOCKADE_NO_SUCH": "1"}) is None
    made(tmp_path, "stockade.toml", "seed = 1\n")
    monkeypatch.chdir(tmp_path)
    assert plain_settings({}, {}) is None
