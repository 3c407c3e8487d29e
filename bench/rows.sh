# shellcheck shell=bash disable=SC2034,SC2154
#
# The rows of the table: what each measures, against what.  To be sourced by
# bench/run.  row_NAME measures the row NAME, with "-" for "_".

# The rows in their order; those of one place stand together.
all_rows=(first-load first-load-slow stage new-rows new-rows-upsert delta-1 delta-1-lookback delta-1-checkpoint delta-1-cold delta-5 delta-10
	delta-20 unchanged empty-warm empty-new empty-warm-far empty-new-far delta-4x reconcile memory memory-8mb)
shapes=(narrow wide megabyte composite uuid ten_indexes partitioned triggers)
shape_rows=(first-load new-rows delta-1 delta-10 unchanged)
peers=(pg_dump logical_replication dlt ingestr sling mimeo)

pipe_words='psql COPY binary piped into psql COPY'
merge_words='the pipe into a temporary table and MERGE'

base_place() { use_place base base "$rows"; }

### first load, new rows, the stage

empty_and_new_job() {
	empty_targets
	new_job '{}'
}

first_load() {
	describe "$row" "$1" ratio "first load of $place_rows rows, empty target with key and one index" "$pipe_words"
	compare empty_and_new_job nothing run_job "pipe $table theirs.$table"
	require_equal
}
row_first_load() { base_place && first_load 0.6; }

# The source takes some time for each row without using the processor, as a
# source that is busy or far does: several readers wait side by side.
row_first_load_slow() {
	base_place
	on_source -c "CREATE OR REPLACE FUNCTION slow(bigint) RETURNS boolean LANGUAGE plpgsql AS \$\$ BEGIN PERFORM pg_sleep(0.0002); RETURN true; END \$\$"
	describe "$row" - ratio "first load of $((rows / 100)) rows, each a fifth of a millisecond late: 4 readers" "one reader"
	compare nothing slow_job run_job run_job
}
slow_job() {
	empty_targets
	new_job "{\"parallel\": $([[ $1 == incload ]] && echo 4 || echo 1), \"filter\": \"id % 100 = 0 AND public.slow(id)\"}"
}

# The job ends in an error that a trigger of the target raises as soon as rows
# are to be applied: by then all of them are in the stage.
row_stage() {
	base_place
	as_loader -c "CREATE TABLE IF NOT EXISTS ours.stop (LIKE ours.$table INCLUDING ALL)" \
		-c "CREATE OR REPLACE FUNCTION ours.stop() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN RAISE 'all is staged'; END \$\$" \
		-c "CREATE OR REPLACE TRIGGER stop BEFORE INSERT ON ours.stop EXECUTE FUNCTION ours.stop()"
	describe "$row" 1.15 ratio "$place_rows rows from the source into the stage" "COPY … TO '/dev/null' at the source"
	compare stage_job nothing run_to_stage copy_to_null
}
stage_job() {
	as_loader >/dev/null -c "SET client_min_messages = warning" \
		-c "SELECT incload_drop_job(job) FROM incload.job WHERE job = 'stage'" \
		-c "SELECT incload_create_job('stage', 'src.$table', 'ours.stop', 'upsert', 'updated_at')"
}
run_to_stage() {
	! as_loader -c "SELECT incload_run('stage')" 2>"$scratch/log/stage.err" || return 1
	grep 'all is staged' "$scratch/log/stage.err"
}
copy_to_null() { on_source -c "COPY $table TO '/dev/null' (FORMAT binary)"; }

# A fifth of the rows are new each time; they are taken out again for the next.
new_rows() {
	describe "$row" "$1" ratio "new rows, a fifth as many as the target has: $2" "$pipe_words"
	compare add_rows nothing run_job pipe_new
	require_equal
	on_source -c "DELETE FROM $table WHERE updated_at > '$before_new'" -c "VACUUM (ANALYZE) $table"
}
row_new_rows() {
	base_place && fill_targets
	new_job "{\"start_at\": \"$next_row\"}" append id "'{}'"
	run_job >/dev/null
	new_rows 1.0 append
}
row_new_rows_upsert() { base_place && fill_targets && new_rows 1.0 'upsert by key'; }
add_rows() {
	local new=$((place_rows / 5))
	since=$(on_target -At -c "SELECT max(updated_at) FROM theirs.$table")
	if (($1 > 0)); then
		on_source -c "DELETE FROM $table WHERE updated_at > '$before_new'"
		on_target -c "DELETE FROM ours.$table WHERE updated_at > '$before_new'" \
			-c "DELETE FROM theirs.$table WHERE updated_at > '$before_new'" -c "VACUUM ours.$table, theirs.$table"
	else
		before_new=$since
	fi
	on_source -c "CALL ${table}_add($next_row, $next_row + $new - 1, clock_timestamp())" -c "VACUUM $table"
	next_row=$((next_row + new))
}
pipe_new() { pipe "(SELECT * FROM $table WHERE updated_at > '$since')" "theirs.$table"; }

### deltas

# delta PERCENT GOAL REFERENCE WORDS [LOOKBACK]
delta() {
	fill_targets "${5:-}"
	describe "$row" "$2" ratio "$1% delta: $1% of the rows changed, a tenth as many new" "$merge_words, $4"
	compare "change $1" "${each:-nothing}" run_job "$3"
	require_equal
}
row_delta_1() { base_place && rounds=$rounds_delta delta 1 1.0 best_merge 'with its best plan'; }
row_delta_5() { base_place && delta 5 0.5 planners_merge 'its plan left to the planner'; }
row_delta_10() { base_place && delta 10 0.5 planners_merge 'its plan left to the planner'; }
row_delta_20() { base_place && delta 20 - planners_merge 'its plan left to the planner'; }
row_delta_1_lookback() {
	base_place
	delta 1 - best_merge 'with its best plan; incload looks again at what the rounds before changed' '15 minutes'
}
row_delta_1_checkpoint() {
	base_place
	each=checkpoint_first delta 1 - best_merge 'with its best plan; each right after a checkpoint'
}
checkpoint_first() { on_target -c CHECKPOINT; }
row_delta_1_cold() {
	base_place
	each=cool_down delta 1 - best_merge 'with its best plan; each with nothing of the target in memory'
}
# Neither the server nor the kernel has a page of any table.
cool_down() {
	as_server "$bindir/pg_ctl" -D "$scratch/target" -l "$scratch/log/target.log" -s -w restart
	find "$scratch/target/base" -type f -exec dd if={} iflag=nocache count=0 status=none \;
}

# The rows that change at first are those that are read again and again.
row_unchanged() { base_place && unchanged 1 0.55; }
unchanged() {
	fill_targets
	change "$1"
	run_job >/dev/null
	best_merge
	describe "$row" "$2" ratio "$1.1% of the rows read again, unchanged" "$merge_words without a guard, with its best plan"
	describe "$row-updated" 0 count "rows that it updates" 'none'
	describe "$row-wal" 0.1 mb "WAL that it writes, MB" 'none'
	compare read_again nothing run_unchanged best_merge
	require_equal
}
# The checkpoint goes back to where the changed rows begin.
read_again() {
	new_job "{\"start_at\": \"$since\", \"filter\": \"updated_at > '$since'\"}"
	on_target -c "VACUUM ours.$table, theirs.$table"
}
run_unchanged() { run_job; }

# The same rows change in a table of 4 times and in one of a fifth of the rows. There
# is no twin, which nothing is compared with here, and no checkpoint between the two.
# Both are warm: COPY and VACUUM keep a large table out of shared buffers.
row_delta_4x() {
	leave_place
	make_place little base $((rows / 5))
	little_next=$next_row
	make_place large base $((rows * 4))
	large_next=$next_row
	empty_targets
	fill ours '0 seconds'
	to_little && fill ours '0 seconds'
	to_large && warm_up
	to_little && warm_up
	describe "$row" 1.5 ratio "the same delta, $((rows / 100)) changed, $((rows / 1000)) new, into $((rows * 4)) rows" "incload into $((rows / 5)) rows"
	compare change_both nothing run_large run_little
	to_large && leave_place
	to_little && leave_place
}
warm_up() {
	on_target -c 'CREATE EXTENSION pg_prewarm'
	on_target -At -o /dev/null -c "SELECT sum(pg_prewarm(oid)) FROM pg_class WHERE relnamespace = 'ours'::regnamespace AND relkind IN ('r', 'i')"
}
to_large() { place=large place_rows=$((rows * 4)) next_row=$large_next; }
to_little() { place=little place_rows=$((rows / 5)) next_row=$little_next; }
change_both() {
	to_large && change 0.25 && large_next=$next_row
	to_little && change 5 && little_next=$next_row
}
run_large() { to_large && run_job; }
run_little() { to_little && run_job; }

### reconcile

# Each side has one process for it, as both are on one machine here: with parallel
# workers, either side alone would have the other's processors, too.
row_reconcile() {
	local round side
	base_place && empty_and_new_job && run_job >/dev/null
	on_target -c "VACUUM (ANALYZE) ours.$table" -c "ALTER DATABASE $place SET max_parallel_workers_per_gather = 0"
	on_source -c "ALTER DATABASE $place SET max_parallel_workers_per_gather = 0"
	describe "$row" 1.3 ratio "reconcile of $place_rows equal rows by checksum, one process on each side" "the slower side's own checksum of the table, in one query"
	describe "$row-sent" 0.1 mb "what the source sends for it, MB" 'none'
	for ((round = 0; round <= rounds; round++)); do
		for side in $(in_turn "$round"); do
			if [[ $side == incload ]]; then
				record incload "$round" "$(seconds_of reconcile)" "$(sent)" "$(tail -n 1 "$scratch/said")"
			else
				record reference "$round" "$(printf '%s\n' "$(seconds_of checksum on_source "$table")" "$(seconds_of checksum on_target "ours.$table")" |
					sort -n | tail -n 1)" 0 "$(tail -n 1 "$scratch/said")"
			fi
		done
	done
	on_target -c "ALTER DATABASE $place RESET max_parallel_workers_per_gather"
	on_source -c "ALTER DATABASE $place RESET max_parallel_workers_per_gather"
}
reconcile() { as_loader -At -c "SELECT count(*) || ' differences' FROM incload_reconcile('bench')"; }
checksum() { $1 -At -c "SELECT count(*), sum(hashtextextended(t::text, 0)) FROM $2 t"; }
sent() { as_loader -At -c "SELECT bytes_read FROM incload.run WHERE job = 'bench' ORDER BY run_id DESC LIMIT 1"; }

### empty runs

row_empty_warm() {
	base_place && no_news
	describe "$row" 5 ratio 'empty run in a session that has run the job before' 'one synchronous single-row commit'
	compare_clients "empty_runs $empty_times" "commits $empty_times"
}
row_empty_new() {
	base_place && no_news
	describe "$row" 1.5 ratio 'empty run, the first of a session' 'one bare connection to the source'
	compare_clients 'empty_sessions 20' "connections 20 ${ports[source]}"
}
# Through a proxy that takes 10 ms for the way there and back.
row_empty_warm_far() {
	base_place && no_news && to_far
	describe "$row" - ratio 'empty run in a session that has run the job before, source 10 ms away' 'one round trip to the source'
	compare_clients 'empty_runs 20' "round_trips 20 $far_port"
	to_near
}
row_empty_new_far() {
	base_place && no_news && to_far
	describe "$row" - ratio 'empty run, the first of a session, source 10 ms away' 'one bare connection to the source'
	compare_clients 'empty_sessions 20' "connections 20 $far_port"
	to_near
}
no_news() {
	as_loader -c "TRUNCATE ours.$table"
	new_job "{\"start_at\": \"$(on_source -At -c 'SELECT clock_timestamp()')\"}"
	run_job >/dev/null
}
# times_of TIMES PORT USER SQL: so many transactions of one session.
times_of() {
	say "$4" >"$scratch/times.sql"
	(cd "$scratch/tmp" && rm -f times.* && PGPASSWORD=$password "$bindir/pgbench" -n -h 127.0.0.1 -p "$2" -U "$3" \
		-t "$1" -f "$scratch/times.sql" --log --log-prefix=times "$place" >/dev/null && awk '{ print $3 }' times.*)
}
empty_runs() { times_of "$1" "${ports[target]}" loader "SELECT rows_read FROM incload_run('bench');"; }
commits() { times_of "$1" "${ports[target]}" loader 'INSERT INTO single VALUES (1);'; }
round_trips() { times_of "$1" "$2" reader 'SELECT 1;'; }
empty_sessions() {
	local n
	for ((n = 0; n < $1; n++)); do
		as_loader -At -c '\timing on' -c "SELECT FROM incload_run('bench')"
	done | awk '/^Time: / { print $2 * 1000 }'
}
connections() {
	local n
	for ((n = 0; n < $1; n++)); do
		PGPASSWORD=$password "$bindir/pgbench" -n -C -h 127.0.0.1 -p "$2" -U reader -t 1 -f <(say '\sleep 0') "$place"
	done | awk '/^average connection time/ { print $5 * 1000 }'
}
to_far() {
	far_port=$(free_port)
	perl "$tree/bench/delay.pl" "$far_port" "${ports[source]}" 5 &
	far_pid=$!
	until (exec 3<>"/dev/tcp/127.0.0.1/$far_port") 2>/dev/null; do read -rt 0.05 <> <(:) || true; done
	on_target -c "ALTER SERVER source OPTIONS (SET port '$far_port')"
}
to_near() {
	on_target -c "ALTER SERVER source OPTIONS (SET port '${ports[source]}')"
	kill "$far_pid"
	wait "$far_pid" 2>/dev/null || true
}

### memory

row_memory() { memory ''; }
# What is not the building of indexes, which takes all of maintenance_work_mem where there are enough rows.
row_memory_8mb() {
	on_target -c "ALTER ROLE loader SET maintenance_work_mem = '8MB'"
	memory ', maintenance_work_mem = 8MB'
	on_target -c "ALTER ROLE loader RESET maintenance_work_mem"
}
memory() {
	local round side
	use_place large base $((rows * 4))
	describe "$row" 32 difference "peak of a first load of $((rows * 4)) rows, MB$1" "of $((rows / 25)) rows"
	for ((round = 1; round <= rounds; round++)); do
		for side in $(in_turn "$round"); do
			empty_targets
			if [[ $side == incload ]]; then new_job '{}'; else new_job "{\"filter\": \"id <= $((rows / 25))\"}"; fi
			run_job >"$scratch/said" 2>"$scratch/log/said.err" &
			part_pid=$!
			record "$side" "$round" "$(peak_of_loader)" 0 "$(wait "$part_pid"; cat "$scratch/said")"
			part_pid=
		done
	done
}
peak_of_loader() {
	local pid=
	until [[ -n $pid ]]; do
		pid=$(on_target -At -c "SELECT pid FROM pg_stat_activity WHERE usename = 'loader' AND backend_type = 'client backend'")
	done
	peak "$pid" | awk '{ printf "%.1f", $1 / 1024 }'
}

### other shapes, each row of them twice its goal at the most

# measure_shape SHAPE ROW
measure_shape() {
	case $1 in
	ten_indexes | partitioned | triggers) use_place "$1" base $((rows / 10)) "$1" ;;
	wide) use_place wide wide $((rows / 50)) ;;
	megabyte) use_place megabyte megabyte $((rows / 10000)) ;;
	narrow) use_place narrow narrow "$rows" ;;
	*) use_place "$1" "$1" $((rows / 10)) ;;
	esac
	case $2 in
	first-load) first_load 1.2 ;;
	new-rows) fill_targets && new_rows 2.0 'upsert by key' ;;
	delta-1) delta 1 2.0 best_merge 'with its best plan' ;;
	delta-10) delta 10 1.0 planners_merge 'its plan left to the planner' ;;
	unchanged) unchanged 10 1.1 ;;
	esac
}

### other tools: a first copy

measure_peer() {
	local peer=$1
	use_place peers base "$peer_rows"
	if ! peer "$peer" available >"$scratch/said" 2>&1; then
		say "$row: not there: $(tail -n 1 "$scratch/said")" >>"$scratch/skipped"
		tail -n 1 "$scratch/skipped"
		return 0
	fi
	# What fails here or does not end is told of, and the other rows go on.
	if ! { peer_before "$peer" && peer "$peer" copy; } >"$scratch/log/peer.err" 2>&1; then
		say "$row: fails: $(tail -n 1 "$scratch/log/peer.err")" >>"$scratch/skipped"
		tail -n 1 "$scratch/skipped"
		return 0
	fi
	describe "$row" - ratio "$peer ($(tail -n 1 "$scratch/said")): first copy of $place_rows rows" "$pipe_words"
	compare "peer_before $peer" nothing "peer $peer copy" "pipe $table theirs.$table"
	peer "$peer" clean
}
peer_before() {
	empty_targets
	peer "$1" clean
}
peer() {
	BINDIR=$bindir SOURCE_PORT=${ports[source]} TARGET_PORT=${ports[target]} SOCKETS=$scratch/sock DATABASE=$place TABLE=$table \
		PASSWORD=$password SHAPE_SQL=$tree/bench/shapes/$table.sql FOLDER=$scratch/tmp \
		timeout -k 10 "${PEER_TIMEOUT:-1800}" "$tree/bench/peers/$1" "$2"
}
