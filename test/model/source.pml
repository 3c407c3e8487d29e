/*
 * source.pml
 *		The source: its clock or its sequence, its transactions, and what can
 *		be seen of them.
 *
 * What becomes visible, and what is cleared after, happens in the order in which
 * the server does it. Steps that nobody can tell apart are one step.
 */

byte clock = FIRST_TIME;
byte arrived;					/* writers that have their watermark; for ids, the sequence */
byte epoch;

byte watermark[N];				/* of the transaction, and so of its row; 0: none */
byte written;					/* they have an xid, and have written */
byte shared;					/* they update the row that all share; the others insert their own */
byte over;						/* committed or rolled back, so that no xid of theirs is running */
byte elders[N];					/* whose xid is lower, and is running */

#define running		(written & ~over)

/* pg_stat_activity */
byte in_gap;					/* the statement has arrived, and nobody can see it yet */
byte secret;					/* sessions whose activity is not shown */
byte untracked;					/* it is by now, but not the start of their transaction */
byte shown;						/* LEAST(xact_start, query_start unless idle) is their watermark */
byte started;					/* xact_start is shown, too */

/* pg_locks */
byte virtual;					/* the lock on its own virtual transaction, by a backend */
byte former;					/* that is the one before, of the same message */
byte fast;						/* a write lock, in the fast path of its backend */
byte main;						/* a write lock, in the lock table; for times, a prepared transaction's */
byte renamed;					/* prepared, and under another name since a crash */
byte dead;

#define is_quiet	(over == ALL && (shown | virtual | fast | main) == 0)

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
#ifndef APPEND
	elders[me] = running;
#ifdef CRASH
	/* after a crash, an xid may come again that is lower than a mark of before */
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
	:: is(shared, me) ->
		for (i : 0 .. N - 1) {
			if
			:: is(live & shared, i) ->
				without(live, i);
				if
				:: !is(has, i) -> forget(i)
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
	without(secret, me);
	without(untracked, me);
	without(shown, me);
	without(started, me);
	without(virtual, me);
	without(former, me);
	without(fast, me);
	without(main, me);
	printf("writer %d: is gone\n", me)
}

inline roll_back(me)
{
	printf("writer %d: rolls back\n", me);
	end_xid(me);
	watermark[me] = 0;
	without(written, me);
	without(shared, me);
	become_unseen(me)
}

#define SEEN(me)	(bit_of(me) & ~secret)

#ifdef ONE_HIDDEN
#define may_hide	(secret == 0 && untracked == 0)
#else
#define may_hide	true
#endif

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
		:: may_hide -> with(secret, me)
		:: true
		fi;
#endif
		printf("writer %d: a statement arrives at %d, hidden: %d\n", me, clock, is(secret, me))
	}
	d_step {
		without(in_gap, me);
		shown = shown | SEEN(me);
		started = started | SEEN(me);
		with(virtual, me);
#ifdef CHAIN
		with(former, me);
#endif
		printf("writer %d: its transaction is shown\n", me)
	}
#ifdef CHAIN
	/* between two transactions: query_start stays */
	d_step {
		without(started, me);
#ifdef INSTANT
		without(virtual, me);
#else
		virtual = virtual & ~SEEN(me);
#endif
		printf("writer %d: the first transaction of the message is over\n", me)
	}
	d_step {
		started = started | SEEN(me);
		with(virtual, me);
		without(former, me);
		printf("writer %d: the second one begins\n", me)
	}
#endif
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

#ifdef ONE_PREPARED
byte prepares;
#define may_prepare	(prepares < 1)
#define count_prepare	prepares++
#else
#define may_prepare	true
#define count_prepare	skip
#endif

proctype Writer(byte me)
{
#ifdef CRASH
	{
#endif
#ifdef BY_TIME
	begin_by_time(me);
#endif
#ifdef BY_ID
	begin_by_id(me);
#endif
	do
	:: d_step { !is(written | over, me) -> write(me) }
#ifdef SHARED
	/* whose update is not over has the row locked */
	:: d_step { !is(written | over, me) && !(shared & running) -> with(shared, me); write(me) }
#endif
#ifdef UNTRACKED
	:: d_step {
		is(secret & virtual, me) ->
		without(secret, me);
		with(untracked, me);
		printf("writer %d: is tracked from now on\n", me)
	}
#endif
	:: d_step { !is(over, me) -> roll_back(me) } break
	:: d_step { is(running, me) -> become_visible(me) }
	:: d_step { is(over, me) -> become_unseen(me) } break
#ifdef PREPARE
	:: d_step {
		is(running & ~main, me) && may_prepare ->
		count_prepare;
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
#define is_late(w)	(is(in_gap, w) && clock >= watermark[w] + GAP)

proctype Clock()
{
end:
	do
	:: d_step {
		clock < END_TIME && (clock < LAST_TIME || arrived == N) &&
		!is_late(0) && !is_late(1) && !is_late(N - 1) ->
		clock++;
		printf("clock: %d\n", clock)
	}
	od
}
#endif

#ifdef CRASH
/* who was open is gone, but for what was prepared, and that has another name */
proctype Crash()
{
end:
	d_step {
		!is_quiet ->
		printf("the source crashes\n");
		epoch++;
		renamed = main;
		for (k : 0 .. N - 1) {
			if
			:: watermark[k] != 0 && !is(over | main, k) ->
				roll_back(k);
				without(in_gap, k);
				with(dead, k)
			:: else
			fi
		}
		shown = 0;
		started = 0;
		virtual = 0
	}
}
#endif
