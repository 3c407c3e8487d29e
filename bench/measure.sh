# shellcheck shell=bash disable=SC2034,SC2154
#
# How a row of the table is measured.  To be sourced by bench/run.
#
# Two sides do the same work on tables of their own, in rounds, and take turns
# in going first.  Round 0 warms up and does not count.  What a round needs
# beforehand is made by functions that are not timed.

# describe ROW GOAL KIND WORK AGAINST: a line of the report.  KIND says what the
# goal is of: ratio (incload's time by the other's), difference (MB more), or
# mb, count (of incload's side alone).  GOAL is '-' where there is none.
describe() { (IFS=$'\t' && say "$*") >>"$scratch/rows.tsv"; }

# record SIDE ROUND VALUE WAL NOTE: a sample of the row under way.
record() { (IFS=$'\t' && say "$row" "$*") >>"$scratch/samples.tsv"; }

wal_position() { on_target -At -c 'SELECT pg_current_wal_insert_lsn() - '"'0/0'::pg_lsn"; }

# the last checkpoint's, above which a page's first change writes all of it
redo_position() { on_target -At -c 'SELECT redo_lsn FROM pg_control_checkpoint()'; }

# sample SIDE ROUND COMMAND…: run it, and note its wall-clock time, the WAL that
# the target wrote meanwhile and the last line it printed.
sample() {
	local side=$1 round=$2 start end wal
	shift 2
	wal=$(wal_position)
	start=${EPOCHREALTIME/./}
	"$@" >"$scratch/said" 2>"$scratch/log/said.err" || die "$row: $side failed in round $round"
	end=${EPOCHREALTIME/./}
	record "$side" "$round" "$(printf '%d.%06d' $(((end - start) / 1000000)) $(((end - start) % 1000000)))" \
		"$(($(wal_position) - wal))" "$(tail -n 1 "$scratch/said")"
}

# compare BEFORE EACH INCLOAD REFERENCE: the rounds of a row.  BEFORE ROUND is
# called ahead of a round, EACH SIDE ahead of a sample.
compare() {
	local before=$1 each=$2 incload=$3 reference=$4 round side
	for ((round = 0; round <= rounds; round++)); do
		$before "$round"
		for side in $(in_turn "$round"); do
			$each "$side"
			if [[ $side == incload ]]; then
				sample incload "$round" $incload
			else
				sample reference "$round" $reference
			fi
		done
	done
}

# seconds_of COMMAND…: how long it takes; what it says is in $scratch/said.
seconds_of() {
	local start end
	start=${EPOCHREALTIME/./}
	"$@" >"$scratch/said" 2>"$scratch/log/said.err" || die "$row: $1 failed"
	end=${EPOCHREALTIME/./}
	printf '%d.%06d' $(((end - start) / 1000000)) $(((end - start) % 1000000))
}

in_turn() { if (($1 % 2 == 0)); then say incload reference; else say reference incload; fi; }

nothing() { :; }

# of_clients SIDE ROUND COMMAND…: as sample, but the command prints the time
# itself, in microseconds a line: the median counts.
of_clients() {
	local side=$1 round=$2
	shift 2
	"$@" >"$scratch/said" 2>"$scratch/log/said.err" || die "$row: $side failed in round $round"
	record "$side" "$round" "$(sort -n "$scratch/said" |
		awk '{ t[NR] = $1 } END { printf "%.6f", (t[int((NR + 1) / 2)] + t[int(NR / 2) + 1]) / 2e6 }')" 0 "$(wc -l <"$scratch/said") times"
}

# compare_clients INCLOAD REFERENCE: the same for what prints its own times.
compare_clients() {
	local round side
	for ((round = 0; round <= rounds; round++)); do
		for side in $(in_turn "$round"); do
			if [[ $side == incload ]]; then
				of_clients incload "$round" $1
			else
				of_clients reference "$round" $2
			fi
		done
	done
}

# peak PID: the highest private memory of a process until it ends, in kB.
peak() {
	local line peak=0
	while [[ -r /proc/$1/status ]]; do
		while read -r line; do
			[[ $line =~ ^RssAnon:[[:space:]]+([0-9]+) ]] || continue
			((BASH_REMATCH[1] <= peak)) || peak=${BASH_REMATCH[1]}
		done </proc/"$1"/status || true
		read -rt 0.02 <> <(:) || true
	done 2>/dev/null
	say "$peak"
}
