# shellcheck shell=bash disable=SC2034
#
# What the scripts share: which PostgreSQL, whose user, a folder that is gone
# afterwards, servers that are gone with it.  To be sourced, not run.

tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The oldest major that incload supports.
oldest_major=15

say() { printf '%s\n' "$*"; }
warn() { printf '%s\n' "$*" >&2; }
die() {
	warn "error: $*"
	exit 1
}

# A make above us hands down its flags, and the caller's environment may point
# at a server of its own; neither may reach what runs here.
unset MAKEFLAGS MFLAGS MAKELEVEL MAKEOVERRIDES
for name in "${!PG@}"; do
	[[ $name == PG_CONFIG ]] || unset "$name"
done
unset name
export LC_ALL=C

# newest_installed: the newest major with a server in Debian's place, or nothing.
newest_installed() {
	local postgres newest='' major
	for postgres in /usr/lib/postgresql/*/bin/postgres; do
		[[ $postgres =~ ^/usr/lib/postgresql/([0-9]+)/ && -x $postgres ]] || continue
		major=${BASH_REMATCH[1]}
		((major >= oldest_major && major > ${newest:-0})) && newest=$major
	done
	say "$newest"
}

# find_postgres: sets pg_config, bindir, pgxs_dir and pg_major, once tools/setup
# has been here.
find_postgres() {
	local major
	pg_config=${PG_CONFIG:-}
	if [[ -z $pg_config ]]; then
		major=$(newest_installed)
		[[ -n $major ]] || die "no PostgreSQL $oldest_major or newer is installed"
		pg_config=/usr/lib/postgresql/$major/bin/pg_config
	fi
	bindir=$("$pg_config" --bindir) || die "cannot run $pg_config"
	pgxs_dir=$(dirname "$("$pg_config" --pgxs)")/../..
	[[ $("$pg_config" --version) =~ ([0-9]+) ]] || die "$pg_config tells no version"
	pg_major=${BASH_REMATCH[1]}
	((pg_major >= oldest_major)) ||
		die "$pg_config is PostgreSQL $pg_major; incload needs $oldest_major or newer"
}

# build: compile, warnings being errors, and install.  Who may not install goes
# on only if what is installed is what was just built.
build() {
	local libdir
	say "server: $("$pg_config" --version)"
	make -C "$tree" -s -j"$(nproc)" PG_CONFIG="$pg_config" all ||
		die "the build failed"
	libdir=$("$pg_config" --pkglibdir)
	if [[ -w $libdir ]]; then
		make -C "$tree" -s PG_CONFIG="$pg_config" install >/dev/null ||
			die "the installation failed"
	elif ! cmp -s "$tree/incload.so" "$libdir/incload.so"; then
		die "$libdir is not writable and has another incload: run" \
			"'make install PG_CONFIG=$pg_config' as root first"
	fi
}

# as_server: run a command as the user that servers run as.  in_part takes the
# array, as it can run programs only.
run_as=()
as_server() { "${run_as[@]}" "$@"; }

# choose_user: PostgreSQL refuses root, so for root it is the user that Debian's
# package makes.  Not su or runuser, which may want a PAM that a bare root has not.
choose_user() {
	local user=postgres
	((EUID == 0)) || return 0
	id "$user" >/dev/null 2>&1 || user=nobody
	chown "$user" "$scratch"
	run_as=(setpriv --reuid="$user" --regid="$(id -g "$user")" --init-groups
		env HOME="$scratch" USER="$user" LOGNAME="$user")
}

# make_scratch: the one temporary folder, and the promise that it and every
# server in it go away however the script ends.
make_scratch() {
	part_pid=
	scratch=
	trap finish EXIT
	trap 'exit 129' HUP
	trap 'exit 130' INT
	trap 'exit 143' TERM
	scratch=$(mktemp -d "${TMPDIR:-/tmp}/incload.XXXXXX")
	scratch=$(realpath "$scratch")
	chmod 755 "$scratch"
	choose_user
	as_server test -w "$scratch" ||
		die "servers cannot run in $scratch: set TMPDIR to a folder that everybody may enter"
	# Sockets and temporary files of everything that is started go there too.
	as_server mkdir "$scratch/log" "$scratch/tmp" "$scratch/sock"
	export TMPDIR=$scratch/tmp
	cd "$scratch" || exit
}

# finish: the EXIT trap.  From here on a second Ctrl-C is not heard, lest it
# leave a server behind.
finish() {
	local status=$?
	trap - EXIT
	trap '' HUP INT TERM
	set +e
	stop_part
	if [[ -n $scratch && -d $scratch ]]; then
		stop_servers
		if ((status != 0)) && [[ ${KEEP:-0} == 1 ]]; then
			warn "kept: $scratch"
		else
			# Who stopped it knows why.
			((status == 0 || status > 128)) || show_logs
			cd / && rm -rf "$scratch"
		fi
	fi
	exit "$status"
}

# show_logs: once; a script that has more to say after them calls it earlier.
logs_shown=0
show_logs() {
	local log
	((logs_shown == 0)) || return 0
	logs_shown=1
	for log in "$scratch"/log/*; do
		[[ -s $log ]] || continue
		warn "--- the end of ${log##*/} (KEEP=1 keeps it all)"
		tail -n 25 "$log" >&2
	done
}

# in_part: run a long command in a process group of its own, with a time limit,
# so that a signal reaches us at once and the whole of it can be ended.
in_part() {
	local status=0
	timeout -k 10 "${PART_TIMEOUT:-1200}" "$@" &
	part_pid=$!
	wait "$part_pid" || status=$?
	part_pid=
	((status != 124)) || warn "stopped: it took longer than ${PART_TIMEOUT:-1200} s"
	return "$status"
}

stop_part() {
	[[ -n $part_pid ]] || return 0
	kill -TERM "$part_pid" 2>/dev/null
	wait "$part_pid" 2>/dev/null
	part_pid=
}

# stop_servers: every postmaster whose data folder lies in the scratch folder,
# those of a test that died too.  A pid file can outlive its server and its
# number be another's: the process must also sit in that folder.
stop_servers() {
	local file dir pid tries
	while IFS= read -r file; do
		dir=$(dirname "$file")
		pid=$(head -n 1 "$file" 2>/dev/null)
		[[ $pid =~ ^[0-9]+$ ]] || continue
		[[ $(readlink "/proc/$pid/cwd" 2>/dev/null) == "$dir" ]] || continue
		kill -QUIT "$pid" 2>/dev/null
		for ((tries = 0; tries < 100; tries++)); do
			kill -0 "$pid" 2>/dev/null || break
			sleep 0.1
		done
		! kill -0 "$pid" 2>/dev/null || kill -KILL "$pid"
	done < <(find "$scratch" -name postmaster.pid 2>/dev/null)
	return 0
}

# free_port: a port of 127.0.0.1 that nobody listens on, below those that the
# kernel gives away by itself.
free_port() {
	local port
	while :; do
		port=$((20000 + RANDOM % 12000))
		(exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
	done
	say "$port"
}

declare -A ports=()

# start_server NAME [LINE…]: a fresh server, its data in $scratch/NAME, its port
# in ports[NAME]; LINEs are added to postgresql.conf.  The socket trusts, TCP wants
# a password: so a superuser needs none, and postgres_fdw's rule can be kept.
start_server() {
	local server=$1 data=$scratch/$1 port tries
	shift
	as_server "$bindir/initdb" -D "$data" -U postgres -E UTF8 --locale=C -N \
		--auth-local=trust --auth-host=scram-sha-256 >"$scratch/log/$server.initdb" ||
		die "initdb failed"
	rm -f "$scratch/log/$server.initdb"
	{
		say "listen_addresses = '127.0.0.1'"
		say "unix_socket_directories = '$scratch/sock'"
		say "fsync = off"
		say "log_line_prefix = '%m [%p] %q%a '"
		printf '%s\n' "$@"
	} | as_server tee -a "$data/postgresql.conf" >/dev/null
	# Between the look and the start another program may take the port.
	for ((tries = 0; tries < 5; tries++)); do
		port=$(free_port)
		if as_server "$bindir/pg_ctl" -D "$data" -l "$scratch/log/$server.log" -s -w \
			-o "-p $port" start; then
			ports[$server]=$port
			return 0
		fi
	done
	die "the server '$server' does not start"
}

# copy_tree: what runs as another user may not be able to read this checkout (in
# /root, say) and must not write to it.
copy_tree() {
	as_server mkdir "$scratch/tree"
	tar -C "$tree" --exclude=./.git --exclude='*.o' --exclude='*.so' -cf - . |
		as_server tar -C "$scratch/tree" --no-same-owner -xf -
}

# tap_environment FOLDER: sets the array of that name, for env: what a TAP file wants
# to find. Its clusters and logs go to that folder of the scratch folder.
tap_environment() {
	local home=$scratch/$1
	as_server mkdir -p "$home/tmp_check/log"
	tap_environment=(PATH="$bindir:$PATH" PG_CONFIG="$pg_config"
		PG_REGRESS="$pgxs_dir/src/test/regress/pg_regress" PGPORT=65432
		PG_TEST_PORT_DIR="$home/ports" TESTDIR="$home" TESTDATADIR="$home/tmp_check"
		TESTLOGDIR="$home/tmp_check/log")
}
