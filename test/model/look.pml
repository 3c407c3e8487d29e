/*
 * look.pml
 *		The first half of a run: the bound, who is open, and the horizon that
 *		comes of it.
 */

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
