"""Where version managers and package managers of users keep what they fetched: facts, as their documentation says."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Manager:
    """A version manager. Each version is a folder of its own, `root`/`installs`, named `prefix` and version.

    `root` is what the `variable` says, else below the home. `default`, below the root: which version where nothing
    names one, as a link to it or a file with its name. `shims`, below the root, are on its users' PATH.
    """

    name: str
    variable: str
    root: str
    languages: tuple[str, ...]
    installs: str
    prefix: str = ""
    default: str = ""
    shims: str = ""

    def place(self, environment: Mapping[str, str], home: Path) -> Path:
        return Path(environment.get(self.variable) or home / self.root)


MANAGERS = (
    Manager("pyenv", "PYENV_ROOT", ".pyenv", ("python",), "versions/{version}", "", "version", "shims"),
    Manager("uv", "UV_PYTHON_INSTALL_DIR", ".local/share/uv/python", ("python",), "{version}", "cpython-"),
    Manager("rbenv", "RBENV_ROOT", ".rbenv", ("ruby",), "versions/{version}", "", "version", "shims"),
    Manager("nodenv", "NODENV_ROOT", ".nodenv", ("node",), "versions/{version}", "", "version", "shims"),
    Manager("nvm", "NVM_DIR", ".nvm", ("node",), "versions/node/{version}", "v", "alias/default"),
    Manager("fnm", "FNM_DIR", ".local/share/fnm", ("node",), "node-versions/{version}/installation", "v",
            "aliases/default", "aliases/default/bin"),
    Manager("volta", "VOLTA_HOME", ".volta", ("node",), "tools/image/node/{version}", "", "tools/user/platform.json",
            "bin"),
    Manager("rustup", "RUSTUP_HOME", ".rustup", ("rust",), "toolchains/{version}", "", "settings.toml"),
    Manager("go", "GOSDK", "sdk", ("go",), "{version}", "go"),
    Manager("asdf", "ASDF_DATA_DIR", ".asdf", (), "installs/{language}/{version}", "", "", "shims"),
    Manager("mise", "MISE_DATA_DIR", ".local/share/mise", (), "installs/{language}/{version}", "", "", "shims"),
    Manager("sdkman", "SDKMAN_DIR", ".sdkman", (), "candidates/{language}/{version}", "",
            "candidates/{language}/current"),
)  # fmt: skip
"""No `languages`: any, each in a folder with its name."""


@dataclass(frozen=True, slots=True)
class Cache:
    """What a package manager has fetched before. It is wanted where the folder has one of the `files`, names or
    patterns, and is `part` of `root`, which is what the `variable` says, else below the home; inside it is at that same
    place below the home. `program`: the manager itself, where it is one file on the PATH.
    """

    name: str
    files: tuple[str, ...]
    variable: str
    root: str
    part: str = ""
    program: str = ""


_GRADLE = ("build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts")
CACHES = (
    Cache("pip", ("requirements.txt", "pyproject.toml", "setup.py"), "PIP_CACHE_DIR", ".cache/pip"),
    Cache("uv", ("uv.lock", "pyproject.toml", "requirements.txt"), "UV_CACHE_DIR", ".cache/uv", program="uv"),
    Cache("npm", ("package.json",), "npm_config_cache", ".npm", "_cacache"),
    Cache("corepack", ("pnpm-lock.yaml", "yarn.lock"), "COREPACK_HOME", ".cache/node/corepack"),
    Cache("pnpm", ("pnpm-lock.yaml",), "npm_config_store_dir", ".local/share/pnpm/store"),
    Cache("bun", ("bun.lock", "bun.lockb", "bunfig.toml"), "BUN_INSTALL", ".bun", "install/cache", "bun"),
    Cache("deno", ("deno.json", "deno.jsonc", "deno.lock"), "DENO_DIR", ".cache/deno", program="deno"),
    Cache("cargo", ("Cargo.toml",), "CARGO_HOME", ".cargo", "registry"),
    Cache("go", ("go.mod",), "GOMODCACHE", "go/pkg/mod"),
    Cache("go build", ("go.mod",), "GOCACHE", ".cache/go-build"),
    Cache("playwright", ("playwright.config.*",), "PLAYWRIGHT_BROWSERS_PATH", ".cache/ms-playwright"),
    Cache("yarn", ("yarn.lock",), "YARN_CACHE_FOLDER", ".cache/yarn"),
    Cache("yarn berry", ("yarn.lock",), "YARN_GLOBAL_FOLDER", ".yarn/berry", "cache"),
    Cache("maven", ("pom.xml",), "", ".m2", "repository"),
    Cache("maven wrapper", ("pom.xml",), "MAVEN_USER_HOME", ".m2", "wrapper/dists"),
    Cache("gradle", _GRADLE, "GRADLE_USER_HOME", ".gradle", "caches"),
    Cache("gradle wrapper", _GRADLE, "GRADLE_USER_HOME", ".gradle", "wrapper/dists"),
    Cache("nuget", ("*.sln", "*.slnx", "*.csproj", "*.fsproj", "*.vbproj"), "NUGET_PACKAGES", ".nuget/packages"),
    Cache("composer", ("composer.json",), "COMPOSER_CACHE_DIR", ".cache/composer"),
    Cache("gem", ("Gemfile",), "", ".local/share/gem", "ruby"),
)
"""Not what lies beside it: npm's logs, the credentials of cargo and gem, the settings of Maven and Gradle."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the `variable` says, else the `root` below the home."""

    variable: str
    root: str


PROGRAMS = (Place("GOPATH", "go"), Place("CARGO_HOME", ".cargo"))
"""Their `bin` holds programs which go and cargo made, and nothing else."""
USER_BASE = Place("PYTHONUSERBASE", ".local")
"""Of `pip install --user`."""


@dataclass(frozen=True, slots=True)
class Keeper:
    """Who keeps virtual environments below what the `variable` says, else the `root` below the home, named by a hash of
    the path of `hashed` in the folder, and what stands behind it (a pattern). One is wanted where the folder has one of
    the `files`.
    """

    files: tuple[str, ...]
    variable: str
    root: str
    hashed: str = ""
    ending: str = ""


KEEPERS = (
    Keeper(("poetry.lock", "pyproject.toml"), "POETRY_VIRTUALENVS_PATH", ".cache/pypoetry/virtualenvs", "",
           r"-py\d\.\d+"),
    Keeper(("Pipfile",), "WORKON_HOME", ".local/share/virtualenvs", "Pipfile"),
)  # fmt: skip
