# What the scripts share; sourced by them.

say() { printf '%s\n' "$*" >&2; }

# A shell that has not read rustup's settings.
command -v cargo >/dev/null || [ ! -x ~/.cargo/bin/cargo ] || PATH=~/.cargo/bin:$PATH
# Debian keeps servers out of users' paths.
PATH=$PATH:/usr/sbin
# Go finds no place for what it builds otherwise.
export HOME=${HOME:-$(echo ~)}

# The absolute path of the folder that cargo builds into. A variable names it, or a file of settings, also one below `~`.
target=$(cargo metadata --no-deps --format-version 1 2>/dev/null |
    sed -n '/"target_directory"/{s/.*"target_directory":"\([^"]*\)".*/\1/;s|\\\\|/|g;p;}') || true
export CARGO_TARGET_DIR=${target:-${CARGO_TARGET_DIR:-$PWD/target}}

# Builds a program of the workspace with the same features as scripts/test, so that no dependency is compiled twice. There
# are no examples: cargo adds the features of dev-dependencies when it is asked for some.
build_bin() { cargo build --quiet --workspace --all-features --bin "$1" --examples; }

# Runs a command as root. Sudo would drop these variables. It asks for a password only where somebody can answer.
as_root() {
    local all=(env DEBIAN_FRONTEND=noninteractive) name
    for name in {http,https,no}_proxy {HTTP,HTTPS,NO}_PROXY; do
        [ -z "${!name:-}" ] || all+=("$name=${!name}")
    done
    all+=("$@")
    if [ "$(id -u)" -eq 0 ]; then "${all[@]}"; elif [ -t 0 ]; then sudo "${all[@]}"; else sudo -n "${all[@]}"; fi
}

can_be_root() {
    [ "$(id -u)" -eq 0 ] || sudo -n true 2>/dev/null || { [ -t 0 ] && command -v sudo >/dev/null && sudo -v; }
}

# The packages to install. Nothing is removed for them.
install_with_apt() {
    # A machine that has just started may be installing something else.
    local wait=(-o DPkg::Lock::Timeout=600) packages=(install -y --no-install-recommends --no-remove "$@")
    as_root apt-get "${wait[@]}" "${packages[@]}" ||
        { as_root apt-get "${wait[@]}" update && as_root apt-get "${wait[@]}" "${packages[@]}"; }
}

# The package of a server, without a service that runs all the time: the tests start theirs.
install_without_service() {
    [ ! -d /etc/systemd/system ] || as_root ln -sfn /dev/null "/etc/systemd/system/$1.service"
    install_with_apt "$1" >&2
}

# find_program NAME PACKAGE…: installs the packages if there is no such program.
find_program() {
    command -v "$1" >/dev/null && return
    if command -v apt-get >/dev/null && can_be_root; then install_with_apt "${@:2}" >&2; fi
    command -v "$1" >/dev/null || { say "\`$1\` is missing. Debian has it in ${*:2}."; return 1; }
}

# Cargo, and what a bare Debian lacks: `cc`, with which Rust links, and `pgrep`, by which tests find processes of servers.
find_cargo() {
    command -v cargo >/dev/null || { say "cargo is missing: install Rust from https://rustup.rs"; return 1; }
    find_program cc gcc libc6-dev && find_program pgrep procps
}

install_redis() {
    say "No redis-server found: installing one."
    if command -v apt-get >/dev/null && can_be_root; then
        install_without_service redis-server
    elif command -v brew >/dev/null; then
        brew install redis >&2
    else
        return 1
    fi
}

# Prints e.g. "7 0"; nothing when the binary does not tell.
version_of() {
    "$1" --version 2>/dev/null | sed -n 's/.*v=\([0-9]*\)\.\([0-9]*\).*/\1 \2/p'
}

find_server() {
    local server=${REDIS_SERVER_BIN:-redis-server} major
    if ! command -v "$server" >/dev/null && [ -z "${REDIS_SERVER_BIN:-}" ]; then
        install_redis
    fi
    if ! command -v "$server" >/dev/null; then
        say "The tests need a Redis server and found no \`$server\`."
        say "Install one (apt-get install redis-server, dnf install redis, brew install redis)"
        say "or name a binary: REDIS_SERVER_BIN=/path/to/redis-server $0"
        return 1
    fi
    read -r major _ <<<"$(version_of "$server")"
    if [ "${major:-7}" -lt 7 ]; then
        say "$server is older than Redis 7.0, which is the oldest version supported."
        say "Newer packages: https://redis.io/docs/latest/operate/oss_and_stack/install/"
        say "or name another binary: REDIS_SERVER_BIN=/path/to/redis-server $0"
        return 1
    fi
}

# The folder of PostgreSQL's programs; nothing when there is none. Debian keeps them out of the path.
postgres_bin_dir() {
    local dir
    for dir in "${POSTGRES_BIN_DIR:-}" $(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -t/ -k5 -n -r); do
        [ -n "$dir" ] && [ -x "$dir/initdb" ] && { echo "$dir"; return; }
    done
    ! command -v initdb >/dev/null || dirname "$(command -v initdb)"
}

install_postgres() {
    say "No PostgreSQL server found: installing one."
    if command -v apt-get >/dev/null && can_be_root; then
        # Without a server of its own that runs all the time: the tests start theirs.
        install_with_apt postgresql-common >&2 &&
            as_root sed -ri 's/^#?(create_main_cluster) *=.*$/\1 = false/' /etc/postgresql-common/createcluster.conf &&
            install_with_apt postgresql >&2
    elif command -v brew >/dev/null; then
        brew install postgresql >&2
    else
        return 1
    fi
}

find_postgres() {
    [ -n "$(postgres_bin_dir)" ] || install_postgres
    if [ -z "$(postgres_bin_dir)" ]; then
        say "The tests need a PostgreSQL server and found no \`initdb\`."
        say "Install one (apt-get install postgresql, dnf install postgresql-server, brew install postgresql)"
        say "or name the folder of its programs: POSTGRES_BIN_DIR=/path/to/bin $0"
        return 1
    fi
}

find_pgbouncer() {
    command -v pgbouncer >/dev/null && return
    say "No PgBouncer found: installing one."
    if command -v apt-get >/dev/null && can_be_root; then
        install_without_service pgbouncer
    elif command -v brew >/dev/null; then
        brew install pgbouncer >&2
    fi
    command -v pgbouncer >/dev/null && return
    say "The tests need PgBouncer and found no \`pgbouncer\`."
    say "Install it (apt-get install pgbouncer, dnf install pgbouncer, brew install pgbouncer)"
    return 1
}

# Where a program of MariaDB is; nothing when there is none. Debian keeps the server out of users' paths.
mariadb_program() {
    local dir
    for dir in "${MARIADB_BIN_DIR:-}" /usr/sbin /usr/bin; do
        [ -n "$dir" ] && [ -x "$dir/$1" ] && { echo "$dir/$1"; return; }
    done
    command -v "$1" || true
}

has_mariadb() {
    local program
    for program in mariadbd mariadb-install-db mariadb; do
        [ -n "$(mariadb_program $program)" ] || return 1
    done
}

install_mariadb() {
    say "No MariaDB server found: installing one."
    if command -v apt-get >/dev/null && can_be_root; then
        # The programs alone, without a server that runs all the time: the tests start theirs.
        install_with_apt mariadb-server-core mariadb-client-core >&2
    elif command -v brew >/dev/null; then
        brew install mariadb >&2
    else
        return 1
    fi
}

find_mariadb() {
    # The tests then use the MySQL server of this folder.
    [ -z "${MYSQL_BIN_DIR:-}" ] || return 0
    has_mariadb || install_mariadb
    if ! has_mariadb; then
        say "The tests need a MariaDB server and found no \`mariadbd\`, \`mariadb-install-db\` or \`mariadb\`."
        say "Install one (apt-get install mariadb-server, dnf install mariadb-server, brew install mariadb)"
        say "or name the folder of its programs: MARIADB_BIN_DIR=/path/to/bin $0"
        say "Beside a MySQL server, apt installs none: remove MySQL, or test with it: MYSQL_BIN_DIR=/path/to/bin $0"
        return 1
    fi
}

has_java() {
    local javac=${JAVA_HOME:+$JAVA_HOME/bin/}javac major
    command -v "$javac" >/dev/null && command -v mvn >/dev/null || return 1
    major=$("$javac" -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

# build_java FOLDER OUTPUT OPTION…: builds a Maven project, if it changed since the last time. Needs no network otherwise.
build_java() {
    local folder=$1 output=$2
    [ -f "$output/built" ] && [ -z "$(find "$folder" -newer "$output/built" -type f)" ] && return
    say "Building the Java part."
    rm -rf "$output"
    mvn --batch-mode --quiet -Dstyle.color=never --file "$folder/pom.xml" package \
        -Doutput="$output" "${@:3}" >&2 && touch "$output/built"
}

# Passes on what `cargo test` says, and adds it up in a last line; takes the line's first words.
summary() {
    awk -v title="$1" '
        { print; fflush() }
        /test result:/ {
            runs += 1
            for (i = 2; i <= NF; i++) {
                if ($i ~ /^passed/) passed += $(i - 1)
                if ($i ~ /^failed/) failed += $(i - 1)
                if ($i ~ /^ignored/) ignored += $(i - 1)
            }
        }
        END {
            printf "\n%s: %d passed, %d failed, %d ignored, in %d runs\n", title, passed, failed, ignored, runs
            # A name that no test has is a mistake.
            exit runs > 0 && passed + failed == 0
        }
    '
}
