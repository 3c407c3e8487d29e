/*
 * job.pml
 *		The job: its target, its checkpoint, and a run from bound to checkpoint.
 */

/* these commit together */
byte ck;						/* the checkpoint: all below is loaded */
byte seen;						/* so far was read; 0: nothing is known */
byte notes;						/* noted bounds */
byte note_at[RUNS];
byte note_waits[RUNS];			/* virtual transactions */

/* what a run knows */
byte nth;						/* which run it is */
byte at;						/* the bound */
byte new_mark;
byte my_epoch;
byte entries;						/* entries of a view that are still to be looked at */
byte open;						/* the virtual transactions there are */
byte waits;						/* those that the bound waits for */
byte snapshot;					/* the rows that it shows */
byte horizon;
byte low;						/* the window */
byte window_seen;
byte window_mark;
bit is_started;
bit is_cut;

/* what must never be */
bit too_high;
bit lost;
bit stale;
bit doubled;
bit stuck;

inline newest(p)
{
	p = 0;
	for (i : 0 .. N - 1) {
		if
		:: (live & bit_of(i)) && after(watermark[i]) > p -> p = after(watermark[i])
		:: else
		fi
	}
}

/*
 * The mark is the oldest xid that is running. What matters of it is who is
 * below: those who are over, and so is everybody with a lower xid.
 */
inline take_mark()
{
#ifdef UPSERT
	new_mark = 0;
	for (i : 0 .. N - 1) {
		if
#ifdef MARK_IS_NEXT
		:: is(written, i) -> with(new_mark, i)
#else
		:: is(written & over, i) && elders[i] == 0 -> with(new_mark, i)
#endif
		:: else
		fi
	}
#else
	skip
#endif
}

/* ---------- step 1: the bound ---------- */

/* the last run comes when all writers are gone, and the clock has gone on */
#define may_begin			(nth < RUNS || nth == RUNS && is_quiet)

inline take_bound()
{
#ifdef BY_TIME
	d_step {
		may_begin ->
		clock = (nth < RUNS -> clock : END_TIME);
		at = before(clock - MARGIN);
		take_mark();
		my_epoch = epoch;
		is_started = true;
		printf("run %d: the clock is %d, the mark %d\n", nth, clock, new_mark)
	}
#else
	d_step {
		may_begin ->
		newest(at);
#ifdef BY_HAND
		at = after(HAND);
#endif
		take_mark();
		printf("run %d: the newest id is %d, the mark %d\n", nth, (at > 0 -> bound(at) - 1 : 0), new_mark)
	}
#ifndef NO_CAP
	d_step {
		if
		:: at > after(arrived) -> at = after(arrived)
		:: else
		fi;
		printf("run %d: the sequence has given out %d\n", nth, arrived)
	}
#endif
#endif
}

/* ---------- the horizon, once all that was looked at is known ---------- */

inline raise(bound_var, to)
{
	if
	:: bound(to) > bound(bound_var) -> bound_var = to
	:: else
	fi
}

#ifdef KEEP_NOTES
#define note_is_valid		true
#else
#define note_is_valid		(ck_epoch == my_epoch)
#endif
#ifdef KEEP_MARK
#define mark_is_valid		true
#else
#define mark_is_valid		(ck_epoch == my_epoch)
#endif

/* bounds that earlier runs noted: settled where all that they waited for are gone */
inline review_notes()
{
	k = 0;
	for (i : 0 .. RUNS - 1) {
		if
		:: i < notes && note_is_valid ->
			v = note_waits[i] & open;
			if
			:: v == 0 -> raise(horizon, note_at[i])
			:: else ->
				note_at[k] = note_at[i];
				note_waits[k] = v;
				k++
			fi
		:: else
		fi
	}
	notes = k
}

/* this run's own bound: settled if it waits for nobody, else noted for later */
inline settle_or_note()
{
	if
	:: waits == 0 -> raise(horizon, at)
	:: waits != 0 && at == 0
	:: waits != 0 && at != 0 ->
		if
		:: notes > 0 && note_waits[(notes > 0 -> notes - 1 : 0)] == waits -> notes--
		:: else
		fi;
		note_at[notes] = at;
		note_waits[notes] = waits;
		notes++
	fi;
	for (i : 0 .. RUNS - 1) {
		if
		:: i >= notes ->
			note_at[i] = 0;
			note_waits[i] = 0
		:: else
		fi
	}
}

inline find_horizon()
{
	horizon = 0;
	review_notes();
	settle_or_note();
	at = 0;
	open = 0;
	waits = 0
}

/* ---------- step 2: who is open ---------- */

#ifdef NO_QUERY_START
#define start_is_seen(w)	(started & bit_of(w))
#else
#define start_is_seen(w)	(shown & bit_of(w))
#endif
#ifdef INCLUSIVE
#define start_bound(w)		after(watermark[w])
#else
#define start_bound(w)		before(watermark[w])
#endif

inline look_at_start(w)
{
	if
	:: start_is_seen(w) && start_bound(w) < at -> at = start_bound(w)
	:: else
	fi
}

inline look_at_activity()
{
#ifdef BY_TIME
#ifdef ENTRIES
	d_step { entries = ALL }
	do
	:: d_step { is(entries, 0) -> look_at_start(0); without(entries, 0) }
	:: d_step { is(entries, 1) -> look_at_start(1); without(entries, 1) }
#if N > 2
	:: d_step { is(entries, 2) -> look_at_start(2); without(entries, 2) }
#endif
	:: entries == 0 -> break
	od
#else
	d_step {
		look_at_start(0);
		look_at_start(1);
#if N > 2
		look_at_start(2)
#endif
	}
#endif
#else
	skip
#endif
}

/* ---------- step 3: their locks ---------- */

/* whom the bound waits for: for times, those whose start cannot be had; for ids, all with a write lock */
#ifdef BY_TIME
#ifdef HIDDEN_IGNORED
#define waited_for(w)		0
#else
#define waited_for(w)		(virtual & secret & bit_of(w))
#endif
#ifdef NO_PREPARED
#define is_waited_for(w)	false
#else
#define is_waited_for(w)	true
#endif
#else
#define waited_for(w)		(is_waited_for(w) -> fast & bit_of(w) : 0)
#ifdef TABLE_ONLY
#define is_waited_for(w)	(is(written, w))
#else
#define is_waited_for(w)	true
#endif
#endif

inline look_at_backend(w)
{
	d_step {
		entries & bit_of(w) ->
		without(entries, w);
		open = open | (virtual & bit_of(w));
		waits = waits | waited_for(w)
	}
}

inline look_at_lock_table()
{
	for (i : 0 .. N - 1) {
		if
		:: main & bit_of(i) ->
			open = open | name_of(i);
			waits = waits | (is_waited_for(i) -> name_of(i) : 0)
		:: else
		fi
	}
	printf("run %d: the bound waits for %d\n", nth, waits)
}

#if defined(LOCKS_BEFORE_ACTIVITY) || defined(LOCKS_BEFORE_BOUND)
#define then_find_horizon	skip
#else
#define then_find_horizon	find_horizon()
#endif

/* first the fast path of each backend, then the lock table as a whole */
inline look_at_locks()
{
#if defined(BY_ID) || defined(HIDDEN)
	d_step { entries = ALL }
	do
	:: look_at_backend(0)
	:: look_at_backend(1)
#if N > 2
	:: look_at_backend(2)
#endif
	:: d_step { entries == 0 -> look_at_lock_table(); then_find_horizon } break
	od;
#else
	d_step { look_at_lock_table(); then_find_horizon }
#endif
}

/* ---------- step 4: the snapshot, and what is made of it ---------- */

inline take_snapshot()
{
	snapshot = live;
	printf("run %d: its snapshot has the rows of %d\n", nth, snapshot)
}

inline plan_window()
{
	if
	:: !mark_is_valid ->
		seen = 0;
		mark = 0
	:: else
	fi;
	low = ck;
	window_seen = seen;
	window_mark = mark
}

#if defined(APPEND) && !defined(READ_AHEAD)
#define in_window(w)		(row(w) >= low && row(w) < horizon)
#elif defined(APPEND)
#define in_window(w)		(row(w) >= low)
#else
#define in_window(w)		(row(w) >= low && (row(w) >= window_seen || !is(window_mark, w)))
#endif
#define is_sent(w)			((snapshot & bit_of(w)) && in_window(w))

inline load(w)
{
	printf("run %d: loads the row of writer %d\n", nth, w);
#ifdef APPEND
	if
	:: has & bit_of(w) -> doubled = true
	:: else
	fi;
#else
	if
	:: shared & bit_of(w) ->
		for (k : 0 .. N - 1) {
			if
			:: k != w && (has & shared & bit_of(k)) ->
				without(has, k);
				if
				:: !(live & bit_of(k)) -> forget(k)
				:: else
				fi
			:: else
			fi
		}
	:: else
	fi;
#endif
	with(has, w)
}

/* the rows below a place; at its end, v is above all that was read */
inline apply()
{
	v = 0;
	for (i : 0 .. N - 1) {
		if
		:: is_sent(i) && row(i) < place ->
			if
			:: after(watermark[i]) > v -> v = after(watermark[i])
			:: else
			fi;
			load(i)
		:: else
		fi
	}
}

#ifdef BY_TIME
#define next_watermark		clock
#else
#define next_watermark		(arrived + 1)
#endif

/*
 * Where a loaded row is does not matter any more, once it is below the
 * checkpoint; and with a key at once, as reading it again would change nothing.
 */
#if defined(UPSERT) && !defined(CUT) && !defined(CRASH)
#define is_settled(w)		is(live & has, w)
#else
#define is_settled(w)		(is(live & has, w) && row(w) < ck)
#endif

inline drop_what_is_loaded()
{
#ifdef BY_TIME
	for (i : 0 .. N - 1) {
		if
		:: is_settled(i) ->
			watermark[i] = 0;
			without(written, i);
			without(window_mark, i);
			without(new_mark, i);
			without(mark, i)
		:: else
		fi
	}
#else
	skip
#endif
}

inline move_checkpoint(reached)
{
	if
	:: reached > 0 && bound(reached) >= bound(ck) -> ck = reached
	:: else
	fi;
	ck_epoch = my_epoch;
	drop_what_is_loaded();
	printf("run %d: the checkpoint is %d, seen %d, mark %d\n", nth, bound(ck), bound(seen), mark);
	/* nobody may be entries who can write below it */
	for (i : 0 .. N - 1) {
		if
		:: watermark[i] != 0 && !(over & bit_of(i)) && watermark[i] < bound(ck) -> too_high = true
		:: else
		fi
	}
	if
	:: bound(ck) > next_watermark -> too_high = true
	:: else
	fi
}
inline end_run()
{
	place = NEVER;
	apply();
#ifdef UPSERT
	if
	:: v > 0 && bound(v) >= bound(seen) -> seen = v
	:: else
	fi;
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
	v = ((horizon > 0 && bound(place) <= bound(horizon)) -> place : horizon);
	move_checkpoint(v);
	low = place;
	snapshot = 0;
	is_cut = true
}

inline forget_run()
{
	at = 0;
	new_mark = 0;
	my_epoch = 0;
	entries = 0;
	open = 0;
	waits = 0;
	snapshot = 0;
	horizon = 0;
	low = 0;
	window_seen = 0;
	window_mark = 0;
	is_started = false;
	is_cut = false;
	nth++
}

inline read()
{
#ifndef SNAPSHOT_FIRST
	take_snapshot();
#endif
#ifdef MARK_LATE
	take_mark();
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

inline check_target()
{
	for (i : 0 .. N - 1) {
		if
		:: (live & ~has) & bit_of(i) -> lost = true
		:: else
		fi;
		if
		:: (has & ~live) & bit_of(i) -> stale = true
		:: else
		fi;
	}
#ifdef BY_TIME
	stuck = ck < before(END_TIME - MARGIN)
#else
	newest(v);
	stuck = ck < v
#endif
}

#ifdef ONLY_THE_END
#define require_settled		skip
#else
#define require_settled		assert(!too_high)
#endif

inline one_run()
{
#ifdef LOCKS_BEFORE_BOUND
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
	look_at_locks();
#endif
#endif
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
	/* then it dies, or goes on with what a later snapshot has; with the same one it were no cut */
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

/* what comes between is a step of its own for everybody else */
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
#ifndef MAX_WATERMARK
	assert(!stuck)
#endif
}
