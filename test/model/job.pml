/*
 * job.pml
 *		The job: its target, its checkpoint, and a run from bound to checkpoint.
 */

/* these commit together, with the target's rows and the mark */
byte ck;						/* the checkpoint: all below is loaded */
byte seen;						/* so far was read */
byte notes;						/* bounds that were noted */
byte note_at[RUNS];
byte note_waits[RUNS];			/* for these virtual transactions */

/* what a run knows */
byte nth;						/* which one it is */
byte my_epoch;
byte at;						/* the bound */
byte new_mark;
byte entries;					/* of a view, that are still to be looked at */
byte unknown;					/* sessions whose start was not seen */
byte opened;					/* virtual transactions that notes wait for, and that are there */
byte waits;						/* those that the bound waits for */
byte horizon;
byte snapshot;					/* versions of rows that it has */
byte low;						/* the window */
byte window_seen;
byte window_mark;
bit is_started;
bit is_cut;

/* what must not be */
bit too_high;					/* somebody can write below the checkpoint */
bit lost;						/* the target has no version of a committed row */
bit stale;						/* it has an old one */
bit doubled;
bit stuck;						/* all is over, and yet not all is settled */

#include "look.pml"

/* ---------- the window, and what is read ---------- */

inline take_snapshot()
{
	snapshot = live;
	printf("run %d: the snapshot has the rows of %d\n", nth, snapshot)
}

inline plan_window()
{
#ifndef KEEP_MARK
	if
	:: ck_epoch != my_epoch ->
		seen = 0;
		mark = 0
	:: else
	fi;
#endif
	low = ck;
	window_seen = seen;
	window_mark = mark
}

#ifdef BY_XMIN
#define in_window(w)	!is(window_mark, w)
#elif defined(APPEND) && !defined(READ_AHEAD)
#define in_window(w)	(row(w) >= low && row(w) < horizon)
#elif defined(APPEND)
#define in_window(w)	(row(w) >= low)
#else
#define in_window(w)	(row(w) >= low && (row(w) >= window_seen || !is(window_mark, w)))
#endif
#define is_sent(w)		(is(snapshot, w) && in_window(w))

#ifdef NEWER_WINS
#define may_replace(w, old)		(watermark[w] >= watermark[old])
#else
#define may_replace(w, old)		true
#endif

/* a version of the shared row takes the place of the one that was there */
inline replace(w)
{
	for (k : 0 .. N - 1) {
		if
		:: k != w && is(has & shared, k) && may_replace(w, k) ->
			without(has, k);
			if
			:: !is(live, k) -> forget(k)
			:: else
			fi
		:: else
		fi
	}
}

inline load(w)
{
	printf("run %d: loads the row of writer %d\n", nth, w);
#ifdef APPEND
	if
	:: is(has, w) -> doubled = true
	:: else
	fi;
	with(has, w)
#else
	if
	:: is(shared, w) -> replace(w)
	:: else
	fi;
	if
	:: is(shared, w) && (has & shared & ~bit_of(w)) != 0
	:: else -> with(has, w)
	fi
#endif
}

/* the rows below a place; v is then above all of them */
inline apply()
{
	v = 0;
	for (i : 0 .. N - 1) {
		if
		:: is_sent(i) && row(i) < place ->
			v = (after(watermark[i]) > v -> after(watermark[i]) : v);
			load(i)
		:: else
		fi
	}
}

/* ---------- the checkpoint ---------- */

/*
 * Where a loaded row is does not matter any more below the checkpoint; with a
 * key not even above, as reading it again would change nothing.
 */
#if defined(UPSERT) && !defined(CUT) && !defined(CRASH) && !defined(NEWER_WINS)
#define is_settled(w)	is(live & has, w)
#else
#define is_settled(w)	(is(live & has, w) && row(w) < ck)
#endif

inline drop_what_is_settled()
{
	for (i : 0 .. N - 1) {
		if
#ifdef BY_TIME
		:: is_settled(i) ->
			watermark[i] = 0;
			without(written, i);
			without(window_mark, i);
			without(new_mark, i);
			without(mark, i)
#endif
		:: else
		fi
	}
}

#ifdef BY_TIME
#define next_watermark	clock
#else
#define next_watermark	(arrived + 1)
#endif

inline move_checkpoint(reached)
{
	if
	:: reached > 0 && bound(reached) >= bound(ck) -> ck = reached
	:: else
	fi;
	ck_epoch = my_epoch;
	printf("run %d: the checkpoint is %d, seen %d, below the mark %d\n", nth, bound(ck), bound(seen), mark);
	for (i : 0 .. N - 1) {
		if
		:: watermark[i] != 0 && !is(over, i) && watermark[i] < bound(ck) -> too_high = true
		:: else
		fi
	}
	if
	:: bound(ck) > next_watermark -> too_high = true
	:: else
	fi;
	drop_what_is_settled()
}

inline forget_run()
{
	my_epoch = 0;
	at = 0;
	new_mark = 0;
	entries = 0;
	unknown = 0;
	opened = 0;
	waits = 0;
	horizon = 0;
	snapshot = 0;
	low = 0;
	window_seen = 0;
	window_mark = 0;
	is_started = false;
	is_cut = false;
	nth++
}

/* the last batch, or the only one */
inline end_run()
{
	place = NEVER;
	apply();
#ifndef APPEND
	seen = (v > 0 && bound(v) >= bound(seen) -> v : seen);
	mark = new_mark;
#endif
	move_checkpoint(horizon);
	forget_run()
}

/* a batch that ends with the row of w, and is not the last one */
inline end_batch(w)
{
#ifdef APPEND
	place = after(watermark[w]);
#else
	place = row(w) + 1;
#endif
	apply();
#ifdef UPSERT
#ifndef BY_XMIN
	if
	:: bound(place) >= bound(seen) ->
#ifdef SEEN_WHOLE
		newest(seen);
#else
		seen = place;
#endif
		mark = new_mark
	:: else
	fi;
#endif
#endif
	v = (horizon > 0 && bound(place) <= bound(horizon) -> place : horizon);
	move_checkpoint(v);
	low = place;
	snapshot = 0;
	is_cut = true
}

/* ---------- a run ---------- */

inline read()
{
#ifndef SNAPSHOT_FIRST
	take_snapshot();
#endif
#ifdef MAX_WATERMARK
	newest(horizon);
#ifdef UPSERT
	/* the milder form: the newest rows are read again */
	horizon = (horizon > 0 -> horizon - KEYS : 0);
#endif
#endif
	plan_window()
}

#ifdef ONLY_THE_END
#define require_settled		skip
#define require_all_settled	skip
#else
#define require_settled		assert(!too_high)
#define require_all_settled	assert(!stuck)
#endif

inline look_around()
{
#ifdef LOCKS_BEFORE_BOUND
	d_step { may_begin -> skip }
	look_at_locks();
	take_bound();
	d_step { find_horizon() }
#else
	take_bound();
#ifdef SNAPSHOT_FIRST
	d_step { take_snapshot() }
#endif
#ifdef LOCKS_BEFORE_ACTIVITY
	look_at_locks();
	look_at_activity();
	d_step { find_horizon() }
#else
	look_at_activity();
	look_at_locks()
#endif
#endif
}

/* between the steps, everybody else may do whatever he likes */
inline one_run()
{
	look_around();
	atomic {
		read();
		if
		:: d_step { true -> end_run() }
#ifdef CUT
		:: d_step { nth < RUNS && is_sent(0) -> end_batch(0) }
		:: d_step { nth < RUNS && is_sent(1) -> end_batch(1) }
#if N > 2
		:: d_step { nth < RUNS && is_sent(2) -> end_batch(2) }
#endif
#endif
		fi;
		require_settled
	}
#ifdef CUT
	/* it dies, or goes on with what a later snapshot has: with the same one, it would have been no cut */
	if
	:: !is_cut
	:: d_step { is_cut -> printf("run %d: dies\n", nth); forget_run() }
	:: atomic {
		is_cut ->
		d_step { take_snapshot(); end_run() }
		require_settled
	}
	fi
#endif
}

inline check_target()
{
	for (i : 0 .. N - 1) {
		if
		:: is(live & ~has, i) && !(is(shared, i) && (has & shared) != 0) -> lost = true
		:: is(live & ~has, i) && is(shared, i) && (has & shared) != 0 -> stale = true
		:: else
		fi
	}
#ifdef BY_TIME
	stuck = ck < before(END_TIME - MARGIN)
#endif
#ifdef BY_ID
	newest(v);
	stuck = ck < v
#endif
#ifdef BY_XMIN
	stuck = (live & ~mark) != 0
#endif
}

proctype Job()
{
	do
#ifdef CRASH
	:: nth <= RUNS ->
		{
			one_run()
		} unless {
			d_step { is_started && my_epoch != epoch -> forget_run() }
		}
#else
	:: one_run()
#endif
	:: nth > RUNS -> break
	od;
	atomic { check_target() }
	assert(!lost);
	assert(!stale);
	assert(!doubled);
	require_all_settled
}
