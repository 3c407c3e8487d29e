# shellcheck shell=bash
#
# What the scripts for other tools share.  To be sourced, not run.  bench/run
# sets BINDIR, SOURCE_PORT, TARGET_PORT, SOCKETS, DATABASE, TABLE, PASSWORD,
# SHAPE_SQL and FOLDER.  "available" prints a version or why not, and fails then;
# "clean" takes away what "copy" has made.

export PGOPTIONS='-c client_min_messages=warning'

to_target() {
	"$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -h "$SOCKETS" -p "$TARGET_PORT" -U postgres -d "$DATABASE" "$@"
}
to_source() {
	"$BINDIR/psql" -X -q -v ON_ERROR_STOP=1 -h "$SOCKETS" -p "$SOURCE_PORT" -U postgres -d "$DATABASE" "$@"
}

source_url() { printf 'postgresql://reader:%s@127.0.0.1:%s/%s' "$PASSWORD" "$SOURCE_PORT" "$DATABASE"; }
target_url() { printf 'postgresql://loader:%s@127.0.0.1:%s/%s' "$PASSWORD" "$TARGET_PORT" "$DATABASE"; }

# need COMMAND: it is there, or say that it is not.
need() {
	command -v "$1" >/dev/null && return
	echo "$1 is not installed"
	return 1
}

# require_copied TABLE: it has as many rows as the source.
require_copied() {
	local copied
	copied=$(to_target -At -c "SELECT count(*) FROM $1")
	[[ $copied == "$(to_source -At -c "SELECT count(*) FROM public.$TABLE")" ]] && return
	echo "$copied rows were copied" >&2
	return 1
}
