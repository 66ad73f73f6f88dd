"""Which names make programs of the host run something, or obey: data for flags.py, in lower case."""

_EDITOR = "an editor runs tasks, settings or configurations from it when the folder is opened"
_AGENT = "instructions and commands that agents on the host obey"
_CI = "runs on the project's build servers"
_VCS = "a version control system runs hooks and commands that it names"
_BUILD = "run by the next build on the host"
_INSTALL = "its scripts run on install"
_TOOL = "a tool of the project runs it, or programs and plugins that it names, as configuration"
_REPL = "a debugger or interpreter runs it when it starts in the folder"
_SHELL = "a shell or terminal reads it when it starts"
_HOME = "settings of a home folder, which name programs that run"
_VERSION = "tools of the project take their version and path from it"

FOLDERS = {
    name: why
    for why, names in {
        _EDITOR: """
            .vscode .idea .zed .fleet .nova .lapce .helix .vim .nvim .emacs.d .settings .vs .devcontainer nbproject
            .swiftpm .run .theia .sublime
        """,
        "git hooks of the project": ".husky .githooks .lefthook",
        "direnv runs what is in it": ".direnv",
        _BUILD: ".cargo .mvn .yarn .bazel .gradle-plugins buildsrc .buckconfig.d .pixi",
        "keys and commands of ssh": ".ssh",
        _AGENT: """
            .claude .cursor .agents .gemini .codex .continue .windsurf .clinerules .roo .kilocode .amazonq .junie .goose
            .opencode .aider .trae .augment .qwen .kiro .crush .copilot .factory .openhands .devin
        """,
        _CI: """
            .github .gitlab .circleci .buildkite .teamcity .semaphore .tekton .forgejo .gitea .woodpecker .drone .builds
            .azuredevops .harness
        """,
        _VCS: ".hg .svn .jj .bzr .pijul _darcs .sl",
        _REPL: ".julia .ipython .jupyter",
        _TOOL: ".storybook .bundle .mise",
        _HOME: ".config .local .gnupg .aws .azure .kube .docker .subversion .gem .rustup .pip .npm-global .oh-my-zsh",
    }.items()
    for name in names.split()
}
"""A folder's name, anywhere in the path."""

RULES = {
    pattern: why
    for why, patterns in {
        "direnv runs it when the folder is entered": ".envrc .envrc.* .autoenv.zsh .autoenv_leave.zsh",
        "tools load it into their environment": ".env .env.*",
        _CI: """
            .gitlab-ci.yml .gitlab-ci.yaml jenkinsfile jenkinsfile.* .travis.yml azure-pipelines.yml
            azure-pipelines.yaml .woodpecker.yml .woodpecker.yaml .drone.yml .drone.yaml bitbucket-pipelines.yml
            appveyor.yml .appveyor.yml cloudbuild.yaml cloudbuild.yml buildspec.yml .cirrus.yml .cirrus.star wercker.yml
            .readthedocs.yaml .readthedocs.yml readthedocs.yml netlify.toml vercel.json fly.toml render.yaml .build.yml
            dependabot.yml renovate.json renovate.json5 .renovaterc .renovaterc.json codecov.yml
        """,
        "pytest runs it before any test": "conftest.py",
        "python runs it by itself": "*.pth *.egg-link sitecustomize.py usercustomize.py pyvenv.cfg",
        _BUILD: """
            setup.py setup.cfg pyproject.toml noxfile.py tox.ini makefile makefile.* gnumakefile bsdmakefile *.mk
            justfile .justfile *.just rakefile *.rake gemfile *.gemspec taskfile.yml taskfile.yaml taskfile.dist.yml
            taskfile.dist.yaml cmakelists.txt *.cmake cmakepresets.json cmakeuserpresets.json cargo.toml build.rs
            *.gradle *.gradle.kts *.init.gradle gradlew gradlew.bat gradle.properties gradle/* gradle-wrapper.properties
            gradle-wrapper.jar libs.versions.toml mvnw pom.xml build.xml ivy.xml build.sbt *.sbt project/*.scala
            project/build.properties .sbtopts .jvmopts build.sc build.mill project.clj deps.edn shadow-cljs.edn
            build.boot configure configure.ac configure.in *.m4 autogen.sh dockerfile dockerfile.* *.dockerfile
            containerfile containerfile.* docker-compose*.yml docker-compose*.yaml compose*.yml compose*.yaml
            docker-bake.hcl docker-bake.json vagrantfile earthfile tiltfile skaffold.yaml procfile procfile.* build.zig
            build.zig.zon meson.build meson_options.txt meson.options wscript sconstruct sconscript premake5.lua
            xmake.lua jamfile jamroot *.jam tupfile tuprules.tup build.ninja build.gn .gn *.gni .bazelrc .bazelversion
            .bazeliskrc workspace workspace.bazel module.bazel build build.bazel *.bzl tools/bazel .buckconfig
            .buckconfig.local buck pants.toml pants.ini .pants.rc .plzconfig *.nix flake.lock devenv.yaml devbox.json
            guix.scm manifest.scm .guix-channel directory.build.* directory.packages.props directory.solution.* *.props
            *.targets *.csproj *.fsproj *.vbproj *.vcxproj *.proj *.sln *.slnx nuget.config global.json
            dotnet-tools.json *.rsp msbuild.rsp *.cake go.mod go.work magefile.go package.swift podfile *.podspec
            cartfile fastfile appfile pubspec.yaml build.yaml shard.yml *.nimble config.nims *.nims nim.cfg *.nim.cfg
            dub.json dub.sdl *.cabal cabal.project cabal.project.* setup.hs setup.lhs stack.yaml package.yaml hie.yaml
            dune dune-project dune-workspace *.opam esy.json mix.exs rebar.config rebar.config.script makefile.pl
            build.pl dist.ini cpanfile *.rockspec cask eask _coqproject latexmkrc .latexmkrc snakefile nextflow.config
            dodo.py fabfile.py pavement.py hatch.toml hatch_build.py pixi.toml environment.yml environment.yaml pipfile
            conda.yaml terragrunt.hcl *.tf pulumi.yaml serverless.yml ansible.cfg packer.json *.pkr.hcl snapcraft.yaml
            pkgbuild *.spec *.ebuild debian/rules debian/*inst debian/*rm apkbuild *.install
        """,
        _INSTALL: """
            package.json .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pnpmfile.js pnpm-workspace.yaml .pnp.cjs .pnp.js
            .pnp.loader.mjs composer.json auth.json bunfig.toml deno.json deno.jsonc lerna.json nx.json turbo.json
            rush.json angular.json workspace.json pip.conf pip.ini uv.toml poetry.toml .condarc .gemrc brewfile
        """,
        _TOOL: """
            *.config.js *.config.cjs *.config.mjs *.config.ts *.config.cts *.config.mts *.conf.js *.conf.cjs *.conf.ts
            .eslintrc .eslintrc.* .prettierrc .prettierrc.* .stylelintrc .stylelintrc.* .babelrc .babelrc.*
            babel.config.* .swcrc .postcssrc .postcssrc.* .browserslistrc .lintstagedrc .lintstagedrc.* .commitlintrc
            .commitlintrc.* .huskyrc .huskyrc.* .releaserc .releaserc.* .czrc .cz.* .nycrc .nycrc.* .c8rc .c8rc.*
            .mocharc.* .jestrc .jestrc.* jest.config.* .taprc .ava.* nodemon.json .nodemonrc tsconfig*.json
            jsconfig*.json gulpfile.* gruntfile.* jakefile jakefile.* .remarkrc .remarkrc.* .textlintrc .textlintrc.*
            .markdownlint* electron-builder.* .size-limit.* wallaby.js .coveragerc pytest.ini .pytest.ini .pylintrc
            pylintrc .flake8 mypy.ini .mypy.ini pyrightconfig.json conf.py mkdocs.yml mkdocs.yaml gunicorn.conf.py
            celeryconfig.py alembic.ini .rspec guardfile capfile .rubocop.yml .standard.yml .solargraph.yml .simplecov
            config.ru .spring.rb phpunit.xml* phpstan.neon* psalm.xml* rector.php .php-cs-fixer* .phpcs.xml* .user.ini
            .htaccess web.config .perltidyrc .perlcriticrc .proverc .luacheckrc .luarc.json .luarc.jsonc .busted
            .formatter.exs .credo.exs .golangci.* .clangd compile_commands.json compile_flags.txt .ccls .clang-tidy
            .scalafix.conf .scalafmt.conf .jscpd.json analysis_options.yaml .sqlfluff .yamllint* .ansible-lint
            .tflint.hcl .vimrc _vimrc .gvimrc .nvimrc .exrc .lvimrc .local.vimrc .nvim.lua .neoconf.json .ideavimrc
            .kakrc .emacs .emacs.el .dir-locals.el .dir-locals-2.el .spacemacs .projectile *.sublime-project
            *.sublime-workspace *.sublime-build .project .classpath .factorypath .cproject .pydevproject *.launch *.iml
            *.ipr *.iws .devcontainer.json devcontainer.json omnisharp.json .omnisharp.json *.code-profile *.rproj
            launch.json .watchmanconfig .ackrc .ctags .arcconfig .arclint .lldbinit* .gdbinit .gdbinit.* .gdbearlyinit
            *-gdb.py *-gdb.scm *-gdb.gdb .tmux.conf .screenrc .zellij.kdl
        """,
        _REPL: """
            .pdbrc .pdbrc.py .pythonrc .pythonrc.py .pythonstartup ipython_config.py jupyter_*config.py .irbrc .pryrc
            .rdbgrc .rdbgrc.rb .byebugrc .rprofile rprofile.site .renviron .ocamlinit .utoprc .ghci .ghci.conf .octaverc
            startup.m .scilab .sqliterc .psqlrc .my.cnf .mylogin.cnf .mongorc.js .mongoshrc.js .mongoshrc .cqlshrc
            .iex.exs .erlang .guile .sbclrc .clisprc .clisprc.lisp .eclrc .ccl-init.lisp .racketrc .swiplrc .gprc
            .tclshrc .wishrc .gnuplot .maxima-init.mac .node_repl_history .noderc.js .psysh.php .perldb .jshellrc
            .ammonite .scalarc .gpinit .bcrc profile.ps1 microsoft.powershell_profile.ps1 .luainit .fennelrc startup.jl
            .k9s
        """,
        _SHELL: """
            .bashrc .bash_profile .bash_login .bash_logout .bash_aliases .bash_completion .profile .zshrc .zshenv
            .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .xonshrc .elvish config.fish
            .inputrc .pam_environment .xprofile .xinitrc .xsession .xsessionrc .xserverrc .lesskey .lessfilter
            .dircolors .aliases .screenrc .hushlogin .p10k.zsh
        """,
        _HOME: """
            .netrc .curlrc .wgetrc .forward .procmailrc .mailrc .muttrc .msmtprc .fetchmailrc .pypirc .dockercfg
            .terraformrc terraform.rc .boto .s3cfg .rhosts .shosts crontab *.service *.timer authorized_keys known_hosts
        """,
        "git fetches and runs what it names": ".gitmodules",
        "git runs commands that its config names": ".gitconfig .gitconfig.* gitconfig .gitreview",
        "git chooses filters by it": ".gitattributes",
        _VCS: ".hgrc hgrc .hgsub .hgsubstate .hgeol .fslckout .fossil-settings/* .cvsrc .p4config",
        "run before each commit": """
            .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml lefthook.* .lefthook.*
            lefthook-local.* .overcommit.yml .lint-staged.* .commitlint.* prek.toml
        """,
        "starts programs as tool servers of agents": """
            .mcp.json mcp.json mcp.toml .mcp.*.json mcp_config.json mcp_settings.json claude_desktop_config.json
        """,
        _AGENT: """
            agents.md agent.md agents.override.md claude.md claude.local.md gemini.md qwen.md crush.md warp.md
            .cursorrules .windsurfrules .clinerules .roomodes .roorules .goosehints .rules copilot-instructions.md
            skill.md *.mdc .aider* opencode.json opencode.jsonc crush.json .crush.json .continuerc.json codex.md
            .codexrc *.instructions.md *.prompt.md *.chatmode.md .openhands_instructions .junie.md replit.md .replit
            replit.nix
        """,
        "configuration of Stockade itself": "stockade.toml .stockade.toml",
        "starts a program when it is opened": """
            *.desktop *.code-workspace autorun.inf desktop.ini *.lnk *.bat *.cmd *.command *.workflow *.terminal *.url
            *.webloc *.scf *.hta *.vbs *.reg *.application *.appref-ms
        """,
        "is found in place of a program while its environment is active": """
            .venv/bin/* .venv/scripts/* node_modules/.bin/* venv/bin/* venv/scripts/* env/bin/* env/scripts/*
        """,
        _VERSION: """
            .tool-versions mise.toml .mise.toml .mise.*.toml mise.*.toml .rtx.toml .python-version .node-version .nvmrc
            .ruby-version .ruby-gemset .rvmrc .java-version .sdkmanrc .go-version .terraform-version .opentofu-version
            .php-version .crystal-version .swift-version .perl-version .lua-version .scala-version .volta rust-toolchain
            rust-toolchain.toml .fvmrc .flutter-version .xcode-version .bun-version .deno-version .dvmrc .asdfrc
        """,
    }.items()
    for pattern in patterns.split()
}  # fmt: skip
"""Patterns of names, without case; one with a `/` is matched against the end of the path."""

GIT_KEYS = (
    "include.path", "includeif.*.path", "core.hookspath", "core.fsmonitor", "core.sshcommand", "core.editor",
    "core.pager", "core.askpass", "core.attributesfile", "core.gitproxy", "core.alternaterefscommand",
    "core.worktree", "sequence.editor", "credential.helper", "credential.*.helper", "diff.external",
    "diff.*.command", "diff.*.textconv", "difftool.*.cmd", "difftool.*.path", "mergetool.*.cmd", "mergetool.*.path",
    "merge.*.driver", "filter.*.clean", "filter.*.smudge", "filter.*.process", "gpg.program", "gpg.*.program",
    "gpg.*.defaultkeycommand", "alias.*", "pager.*", "browser.*.cmd", "browser.*.path", "man.*.cmd", "man.*.path",
    "web.browser", "guitool.*.cmd", "remote.*.uploadpack", "remote.*.receivepack", "remote.*.vcs",
    "uploadpack.packobjectshook", "sendemail.sendmailcmd", "sendemail.smtpserver", "sendemail.*cmd",
    "trailer.*.command", "trailer.*.cmd", "interactive.difffilter", "init.templatedir", "submodule.*.update",
    "tar.*.command", "hook.*.command",
)  # fmt: skip
"""Of git's settings, those whose values name programs that git runs, or files that it obeys."""
