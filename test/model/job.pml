/*
 * job.pml
 *		The job: its target, its checkpoint, and a run from bound to checkpoint.
 *
 * In these ways the protocol could be wrong:
 *
 *   MAX_WATERMARK           the horizon is the newest watermark that was read
 *   NO_HORIZON              nothing is ever settled
 *   READ_AHEAD              without a key, too
 *   SNAPSHOT_FIRST          the snapshot is taken before anybody is looked at
 *   LOCKS_BEFORE_ACTIVITY   pg_locks is looked at before pg_stat_activity
 *   LOCKS_BEFORE_BOUND      or before the newest id
 *   NO_MARGIN               the bound of a time is the clock itself
 *   NO_QUERY_START          who is between two transactions is not seen
 *   INCLUSIVE               the bound is after the oldest start, not before it
 *   NO_PREPARED             prepared transactions do not count
 *   HIDDEN_IGNORED          nor do hidden sessions
 *   UNTRACKED_IGNORED       nor those that are shown without a start
 *   NAMES_ONLY              a hidden session's next transaction is not followed
 *   TABLE_ONLY              locks on the sequence do not count
 *   NO_CAP                  an id above the sequence may become the bound
 *   MARK_IS_NEXT            the mark is the next xid, not the oldest that is running
 *   SEEN_WHOLE              a batch has seen what only the rest of its run reads
 *   NEWER_WINS              a row is not replaced by one with an older watermark
 *   KEEP_NOTES, KEEP_MARK   they hold beyond a crash of the source
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

/* ---------- the bound and the mark ---------- */

inline newest(p)
{
	p = 0;
	for (i : 0 .. N - 1) {
		if
		:: is(live, i) && after(watermark[i]) > p -> p = after(watermark[i])
		:: else
		fi
	}
}

/*
 * The mark is the oldest xid that is running. What matters of it is whose xid
 * is below: theirs who are over, as is everybody with a lower xid.
 */
inline take_mark()
{
	new_mark = 0;
	for (i : 0 .. N - 1) {
		if
#ifdef APPEND
		:: false
#elif defined(MARK_IS_NEXT)
		:: is(written, i) -> with(new_mark, i)
#else
		:: is(written & over, i) && elders[i] == 0 -> with(new_mark, i)
#endif
		:: else
		fi
	}
}

/* the last run comes when all writers are gone, and the clock has gone on */
#define may_begin		(nth < RUNS || nth == RUNS && is_quiet)

inline take_bound()
{
	d_step {
		may_begin ->
#ifdef BY_TIME
		clock = (nth < RUNS -> clock : END_TIME);
		at = before(clock - MARGIN);
#endif
#ifdef BY_ID
		newest(at);
#endif
#ifdef BY_HAND
		at = after(HAND);
#endif
		take_mark();
		my_epoch = epoch;
		is_started = true;
		printf("run %d: the bound is %d, rows below the mark %d\n", nth, bound(at), new_mark)
	}
#if defined(BY_ID) && !defined(NO_CAP)
	d_step {
		at = (at > after(arrived) -> after(arrived) : at);
		printf("run %d: the sequence has given out %d\n", nth, arrived)
	}
#endif
}

/* ---------- what is made of all that was looked at ---------- */

#ifdef KEEP_NOTES
#define notes_hold		true
#else
#define notes_hold		(ck_epoch == my_epoch)
#endif

/* bounds that earlier runs noted: settled where all that they waited for are gone */
inline review_notes()
{
	k = 0;
	for (i : 0 .. RUNS - 1) {
		if
		:: i < notes && notes_hold ->
			v = note_waits[i] & opened;
			if
			:: v == 0 -> horizon = (bound(note_at[i]) > bound(horizon) -> note_at[i] : horizon)
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

/* this run's own: settled if it waits for nobody, else noted for later */
inline settle_or_note()
{
	if
	:: at == 0
	:: at != 0 && waits == 0 -> horizon = (bound(at) > bound(horizon) -> at : horizon)
	:: at != 0 && waits != 0 ->
		/* a higher bound that waits for the same ones is worth more */
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
#ifndef NO_HORIZON
	review_notes();
	settle_or_note();
#endif
	at = 0;
	unknown = 0;
	opened = 0;
	waits = 0
}

/* ---------- pg_stat_activity ---------- */

#ifdef NO_QUERY_START
#define start_shows		started
#else
#define start_shows		shown
#endif
#ifdef INCLUSIVE
#define start_bound(w)	after(watermark[w])
#else
#define start_bound(w)	before(watermark[w])
#endif

/* whose start cannot be had: it is hidden, or its transaction shows none */
#ifdef HIDDEN_IGNORED
#define is_unknown(w)	false
#elif defined(UNTRACKED_IGNORED) || defined(NO_QUERY_START)
#define is_unknown(w)	is(secret, w)
#else
#define is_unknown(w)	is(secret | untracked | (shown & ~started), w)
#endif

inline look_at_entry(w)
{
	at = (is(start_shows, w) && start_bound(w) < at -> start_bound(w) : at);
	unknown = unknown | (is_unknown(w) -> bit_of(w) : 0)
}

inline look_at_activity()
{
#ifndef BY_TIME
	skip
#elif defined(ENTRIES)
	d_step { entries = ALL }
	do
	:: d_step { is(entries, 0) -> look_at_entry(0); without(entries, 0) }
	:: d_step { is(entries, 1) -> look_at_entry(1); without(entries, 1) }
#if N > 2
	:: d_step { is(entries, 2) -> look_at_entry(2); without(entries, 2) }
#endif
	:: entries == 0 -> break
	od
#else
	d_step {
		look_at_entry(0);
		look_at_entry(1);
#if N > 2
		look_at_entry(2)
#endif
	}
#endif
}

/* ---------- pg_locks ---------- */

/* names are followed from one transaction of a session to its next */
#ifdef NAMES_ONLY
#define name_of(w)		(1 << (is(former | renamed, w) -> N + (w) : (w)))
#else
#define name_of(w)		(1 << (is(renamed, w) -> N + (w) : (w)))
#endif

#if defined(BY_TIME) && defined(NO_PREPARED)
#define main_counts(w)	false
#elif defined(BY_ID) && defined(TABLE_ONLY)
#define main_counts(w)	is(written, w)
#else
#define main_counts(w)	true
#endif
#ifdef BY_TIME
#define fast_counts(w)	is(virtual & unknown, w)
#else
#define fast_counts(w)	(is(fast, w) && main_counts(w))
#endif

/* it is enough to know of those that a noted bound waits for */
#define look_for(w)		opened = opened | (name_of(w) & (note_waits[0] | note_waits[1]))

/* in the fast path of a backend: its virtual transaction, and weak locks */
inline look_at_backend(w)
{
	if
	:: is(virtual, w) -> look_for(w)
	:: else
	fi;
	waits = waits | (fast_counts(w) -> name_of(w) : 0)
}

inline look_at_lock_table()
{
	for (i : 0 .. N - 1) {
		if
		:: is(main, i) ->
			look_for(i);
			waits = waits | (main_counts(i) -> name_of(i) : 0)
		:: else
		fi
	}
	printf("run %d: the bound is %d, and waits for %d\n", nth, bound(at), waits)
}

#if defined(LOCKS_BEFORE_ACTIVITY) || defined(LOCKS_BEFORE_BOUND)
#define then_find_horizon	skip
#else
#define then_find_horizon	find_horizon()
#endif

/* first each backend's own, and then the lock table as a whole */
inline look_at_locks()
{
#if defined(BY_ID) || defined(HIDDEN) || defined(CHAIN)
	d_step { entries = ALL }
	do
	:: d_step { is(entries, 0) -> look_at_backend(0); without(entries, 0) }
	:: d_step { is(entries, 1) -> look_at_backend(1); without(entries, 1) }
#if N > 2
	:: d_step { is(entries, 2) -> look_at_backend(2); without(entries, 2) }
#endif
	:: d_step { entries == 0 -> look_at_lock_table(); then_find_horizon } break
	od
#elif defined(BY_TIME)
	d_step { look_at_lock_table(); then_find_horizon }
#else
	skip
#endif
}

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
