/*
 * source.pml
 *		The source: its clock or sequence, its transactions, and what can be
 *		seen of them.
 *
 * A set of writers is a mask of bits. Where two steps of the server cannot be
 * told apart by anyone who looks, they are one step here.
 */

byte clock = FIRST_TIME;
byte arrived;					/* writers that have their watermark; for ids, the sequence */
byte epoch;

byte watermark[N];				/* of the transaction, and so of its row; 0: none */
byte written;					/* they have an xid, and have written */
byte shared;					/* they update the row that all share; the others insert their own */
byte over;						/* committed or rolled back, so that no xid of theirs is running */
byte elders[N];					/* whose xid is lower, and is running */

/* pg_stat_activity */
byte in_gap;					/* the statement has arrived, and nobody can see it yet */
byte secret;					/* sessions whose activity is not shown */
byte shown;						/* LEAST(xact_start, query_start unless idle) is their watermark */
byte started;					/* xact_start alone is */

/* pg_locks */
byte virtual;					/* the lock on its own virtual transaction, by a backend */
byte fast;						/* a write lock, in the fast path of its backend */
byte main;						/* a write lock, in the lock table; for times, a prepared transaction's */

#ifdef PREPARES
byte prepares;					/* how often that happened */
#define may_prepare	(prepares < PREPARES)
#else
#define may_prepare	true
#endif

#ifdef CRASH
byte renamed;					/* prepared, and under another name since the crash */
byte dead;
#define name_of(w)	(1 << (is(renamed, w) -> N + (w) : (w)))
#else
#define name_of(w)	bit_of(w)
#endif

/* a version that neither side has is no more */
inline forget(w)
{
#ifndef SNAPSHOT_FIRST
	watermark[w] = 0;
	without(written, w);
	without(shared, w)
#else
	skip
#endif
}

inline write(me)
{
#ifdef UPSERT
	elders[me] = written & ~over;
#ifdef CRASH
	/* after a crash, an xid may come again that is lower than any mark of before */
	mark = mark | (epoch != ck_epoch -> bit_of(me) : 0);
#endif
#endif
	with(written, me);
	printf("writer %d: writes at %d\n", me, watermark[me])
}

inline end_xid(me)
{
	with(over, me);
	for (i : 0 .. N - 1) {
		without(elders[i], me)
	}
}

/* from now on every snapshot has what it wrote */
inline become_visible(me)
{
	if
	:: shared & bit_of(me) ->
		for (i : 0 .. N - 1) {
			if
			:: live & shared & bit_of(i) ->
				without(live, i);
				if
				:: !(has & bit_of(i)) -> forget(i)
				:: else
				fi
			:: else
			fi
		}
	:: else
	fi;
	end_xid(me);
	with(live, me);
	printf("writer %d: commits\n", me)
}

inline become_unseen(me)
{
	without(shown, me);
	without(started, me);
	without(virtual, me);
	without(fast, me);
	without(main, me);
	printf("writer %d: is gone\n", me)
}

inline roll_back(me)
{
	end_xid(me);
	watermark[me] = 0;
	without(written, me);
	without(shared, me);
	become_unseen(me);
	printf("writer %d: rolls back\n", me)
}

/* those whose update of the shared row is not over: the next one waits */
#define running			(written & ~over)
#define is_quiet		(over == ALL && (shown | virtual | fast | main) == 0)

/* writers are alike, so they may as well take their watermarks in order */
inline begin_by_time(me)
{
	atomic {
		arrived == me ->
		arrived++;
		watermark[me] = clock;
		with(in_gap, me);
#ifdef HIDDEN
		if
		:: with(secret, me)
		:: true
		fi;
#endif
		printf("writer %d: a statement arrives at %d, hidden: %d\n", me, clock, (secret & bit_of(me)) != 0)
	}
#ifdef CHAIN
	d_step {
		without(in_gap, me);
		shown = shown | (bit_of(me) & ~secret);
		printf("writer %d: the statement is shown\n", me)
	}
#endif
	d_step {
		without(in_gap, me);
		shown = shown | (bit_of(me) & ~secret);
		started = started | (bit_of(me) & ~secret);
		with(virtual, me);
		printf("writer %d: the transaction is shown\n", me)
	}
}

/* nextval() locks the sequence to the end of the transaction, and then takes an id */
inline begin_by_id(me)
{
	d_step {
		with(virtual, me);
		with(fast, me);
		printf("writer %d: locks the sequence\n", me)
	}
	d_step {
		arrived == me ->
		arrived++;
		watermark[me] = arrived;
		printf("writer %d: takes id %d\n", me, arrived)
	}
}

proctype Writer(byte me)
{
#ifdef CRASH
	{
#endif
#ifdef BY_TIME
	begin_by_time(me);
#else
	begin_by_id(me);
#endif
	do
	:: d_step { !is(written | over, me) -> write(me) }
#if defined(BY_TIME) && defined(UPSERT) && !defined(OWN)
	:: d_step { !is(written | over, me) && !(shared & running) -> with(shared, me); write(me) }
#endif
	:: d_step { !is(over, me) -> roll_back(me) } break
	:: d_step { is(running, me) -> become_visible(me) }
	:: d_step { is(over, me) -> become_unseen(me) } break
#ifdef PREPARE
	:: d_step {
		is(running & ~main, me) && may_prepare ->
#ifdef PREPARES
		prepares++;
#endif
		with(main, me);
		without(fast, me);
		without(virtual, me);
		printf("writer %d: prepares, its locks have moved\n", me)
	}
#ifdef BY_TIME
	:: d_step {
		is(running & main & shown, me) ->
		without(shown, me);
		without(started, me);
		printf("writer %d: its start is cleared\n", me)
	}
#endif
#endif
	od
#ifdef CRASH
	} unless { is(dead, me) }
#endif
}

#ifdef BY_TIME
#define is_late(w)	((in_gap & bit_of(w)) && clock >= watermark[w] + GAP)

proctype Clock()
{
end:
	do
	:: d_step {
		clock < END_TIME && (clock < LAST_TIME || arrived == N) &&
		!is_late(0) && !is_late(1) && (N < 3 || !is_late(N - 1)) ->
		clock++;
		printf("clock: %d\n", clock)
	}
	od
}
#endif

#ifdef CRASH
/*
 * Who was open is gone, but for what was prepared, and that has another name.
 */
proctype Crash()
{
end:
	d_step {
		!is_quiet ->
		printf("the source crashes\n");
		epoch++;
		in_gap = 0;
		shown = 0;
		started = 0;
		virtual = 0;
		fast = 0;
		renamed = main;
		for (k : 0 .. N - 1) {
			if
			:: watermark[k] != 0 && !is(over | main, k) ->
				roll_back(k);
				with(dead, k)
			:: else
			fi
		}
	}
}
#endif
