# shellcheck shell=bash disable=SC2034,SC2154
#
# The tables that are loaded, and what loads them.  To be sourced by bench/run.
#
# A place is a database of the same name on both servers: at the source a table
# of some shape in schema public; at the target that table's twins, ours.TABLE
# for incload and theirs.TABLE for the reference, both owned by the plain role
# loader.  Who loads comes in over TCP with a password, incload as well.

psql_here() { "$bindir/psql" -X -q -P footer=off -P pager=off -v ON_ERROR_STOP=1 "$@"; }
on_source() { psql_here -h "$scratch/sock" -p "${ports[source]}" -U postgres -d "$place" "$@"; }
on_target() { psql_here -h "$scratch/sock" -p "${ports[target]}" -U postgres -d "$place" "$@"; }
as_reader() { PGPASSWORD=$password psql_here -h 127.0.0.1 -p "${ports[source]}" -U reader -d "$place" "$@"; }
as_loader() { PGPASSWORD=$password psql_here -h 127.0.0.1 -p "${ports[target]}" -U loader -d "$place" "$@"; }

# memory_mb: of the machine, or what a container may use of it
memory_mb() {
	local limit
	limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || say max)
	awk -v limit="$limit" '/^MemTotal/ { kb = $2; if (limit + 0 > 0 && limit / 1024 < kb) kb = limit / 1024; printf "%d", kb / 1024 }' /proc/meminfo
}

# start_servers: what differs from PostgreSQL's defaults.  Autovacuum and timed
# checkpoints would hit one side and not the other: VACUUM and CHECKPOINT are run
# ahead of the samples instead.
start_servers() {
	local -a settings=('fsync = on' "shared_buffers = $(($(memory_mb) / 4))MB" 'max_wal_size = 40GB' 'checkpoint_timeout = 1d'
		'autovacuum = off' "TimeZone = 'UTC'")
	start_server source "${settings[@]}" 'wal_level = logical'
	start_server target "${settings[@]}"
	place=postgres
	on_source -c "CREATE ROLE reader LOGIN REPLICATION PASSWORD '$password'; GRANT pg_read_all_stats TO reader"
	on_target -c "CREATE ROLE loader LOGIN PASSWORD '$password'"
}

# make_place NAME SHAPE ROWS [MORE]: MORE is a shape that is laid over the twins.
make_place() {
	local more=${4:-} schema
	place=postgres
	on_source -c "CREATE DATABASE $1"
	on_target -c "CREATE DATABASE $1 OWNER loader"
	place=$1 table=$2 next_row=$(($3 + 1)) place_rows=$3
	on_source -v is_source=true -f "$tree/bench/shapes/$table.sql"
	on_source -c "CALL ${table}_add(1, $3)" -c "VACUUM (ANALYZE) $table" -c "GRANT SELECT ON $table TO reader"
	on_target -v source_port="${ports[source]}" -v password="$password" -v place="$place" -f "$tree/bench/target.sql"
	as_loader -c "IMPORT FOREIGN SCHEMA public LIMIT TO ($table) FROM SERVER source INTO src"
	for schema in ours theirs; do
		as_loader -c "CREATE SCHEMA $schema; SET search_path = $schema" -v is_source=false \
			-f "$tree/bench/shapes/$table.sql" ${more:+-f "$tree/bench/shapes/$more.sql"}
	done
	merge=$(on_target -At -c "SELECT reference_merge('theirs.$table', 'stage')")
}

# use_place NAME SHAPE ROWS [MORE]: the same, unless that is where we are.
use_place() {
	[[ $place != "$1" ]] || return 0
	leave_place
	make_place "$@"
}

leave_place() {
	[[ $place != postgres ]] || return 0
	local left=$place
	place=postgres
	on_target -c "DROP DATABASE $left (FORCE)"
	on_source -c "DROP DATABASE $left (FORCE)"
	on_source -c CHECKPOINT
	on_target -c CHECKPOINT
}

# copy_out SQL: rows of the source on standard output.  copy_in TABLE: into it.
copy_out() { as_reader -c "COPY $1 TO STDOUT (FORMAT binary)"; }
copy_in() { as_loader -c "COPY $1 FROM STDIN (FORMAT binary)"; }
pipe() { copy_out "$1" | copy_in "$2"; }

# new_job OPTIONS [STRATEGY WATERMARK KEY]: the job 'bench', made anew.  Without
# a lookback: that of 15 minutes would cover all that the rounds before changed.
new_job() {
	as_loader >/dev/null -c "SET client_min_messages = warning" \
		-c "SELECT incload_drop_job(job) FROM incload.job WHERE job = 'bench'" \
		-c "SELECT incload_create_job('bench', 'src.$table', 'ours.$table', strategy => '${2:-upsert}', watermark => '${3:-updated_at}',
			key => ${4:-NULL}, options => \$options\$$1\$options\$)"
}

run_job() {
	as_loader -At -F ' ' -c "SELECT rows_read, 'read', rows_inserted, 'inserted', rows_updated, 'updated', rows_unchanged, 'unchanged'
		FROM incload_run('bench')"
}

empty_targets() {
	as_loader -c "TRUNCATE ours.$table, theirs.$table"
	on_target -c CHECKPOINT
}

# fill_targets [LOOKBACK]: both hold what the source has, the job is at its end, and no
# page of theirs has to go to WAL as a whole, since all were written after a checkpoint.
fill_targets() {
	empty_targets
	fill 'theirs ours' "${1:-0 seconds}"
}
# fill SCHEMAS LOOKBACK
fill() {
	local schema checkpoint
	checkpoint=$(redo_position)
	for schema in $1; do
		pipe "$table" "$schema.$table"
	done
	on_target -c "VACUUM (ANALYZE) ours.$table, theirs.$table"
	[[ $(redo_position) == "$checkpoint" ]] || die "$row: a checkpoint came while the tables were filled: raise max_wal_size"
	new_job "{\"lookback\": \"$2\", \"start_at\": \"$(on_source -At -c 'SELECT clock_timestamp()')\"}"
	run_job >/dev/null
}

# change PERCENT: so many rows change at the source, and a tenth as many are new.
# Sets since, above which the changes are.
change() {
	local new share
	since=$(on_target -At -c "SELECT max(updated_at) FROM theirs.$table")
	new=$(awk "BEGIN { print int($place_rows * $1 / 1000 + 1) }")
	# Of the rows that the place began with, however many came since.
	share=$(on_source -At -c "SELECT $1 * $place_rows / greatest(reltuples, 1) FROM pg_class WHERE oid = '$table'::regclass")
	on_source -c "CALL ${table}_change($share)" \
		-c "CALL ${table}_add($next_row, $next_row + $new - 1, clock_timestamp())" -c "VACUUM $table"
	next_row=$((next_row + new))
	on_target -c "VACUUM ours.$table, theirs.$table"
}

# reference_merge_run [SETTING…]: the pipe into a temporary table, and MERGE.
reference_merge_run() {
	copy_out "(SELECT * FROM $table WHERE updated_at > '$since')" |
		PGOPTIONS="${*/#/-c }" as_loader -c BEGIN -c "CREATE TEMPORARY TABLE stage (LIKE theirs.$table INCLUDING STORAGE) ON COMMIT DROP" \
			-c "COPY stage FROM STDIN (FORMAT binary)" -c "$merge" -c COMMIT
}
best_merge() { reference_merge_run jit=off enable_hashjoin=off enable_mergejoin=off; }
planners_merge() { reference_merge_run; }

# require_equal: source and twins have the same rows.
require_equal() {
	local sql="SELECT count(*), sum(hash_record_extended(t.*, 0)::numeric) FROM" source ours theirs
	source=$(on_source -At -c "$sql $table t")
	ours=$(on_target -At -c "$sql ours.$table t")
	theirs=$(on_target -At -c "$sql theirs.$table t")
	[[ $source == "$ours" && $source == "$theirs" ]] ||
		die "$row: source, incload's table and the reference's differ: $source, $ours, $theirs"
}
