/*
 * horizon.pml
 *		A model of the horizon protocol: writers at a source, and a job that
 *		loads what they write while they write it.
 *
 * README.md tells which step is which function of src/, and test/model/run has
 * the list of what must hold. What is modelled is chosen by macros:
 *
 *   BY_TIME      the watermark is now() of the transaction
 *   BY_ID        it is nextval()
 *   BY_XMIN      there is none but the xid
 *   UPSERT       with a key: the job reads ahead, and reads again
 *   APPEND       without one: it stops at the horizon
 *
 * What can happen, beside that a transaction begins, writes, commits and rolls
 * back:
 *
 *   SHARED       writers update one row, one after the other
 *   PREPARE      a transaction is prepared, and ends later; with ONE_PREPARED, at most one
 *   CHAIN        a message has two transactions, with one now()
 *   HIDDEN       a session's activity may be hidden; with ONE_HIDDEN, at most one's
 *   UNTRACKED    and is shown from then on, without the start of its transaction
 *   INSTANT      a hidden session is looked at between two transactions
 *   CRASH        the source crashes once, and comes back
 *   BY_HAND      there is a row whose id is far above the sequence
 *   CUT          a run commits a batch first, and then the rest, or dies
 *   ENTRIES      pg_stat_activity is looked at entry by entry, in any order
 *
 * In these ways the protocol could be wrong. With ONLY_THE_END, only what the
 * target has at last is checked.
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

#ifndef N
#define N			3			/* writers */
#endif
#define RUNS		2			/* while they write; one more comes after them */

#define GAP			1			/* a statement is shown at most so long after it arrived */
#ifdef NO_MARGIN
#define MARGIN		0
#else
#define MARGIN		GAP			/* so far behind the clock the bound stays */
#endif

#define FIRST_TIME	GAP			/* statements arrive at three times, or some at the same */
#define LAST_TIME	(FIRST_TIME + 2)
#define END_TIME	(LAST_TIME + GAP + 1)
#define HAND		9
#define NEVER		255

/*
 * A place is a number: the watermark, and within it the key. Each writer has a
 * key of its own, and all share one. 0 is below every row, and says "not set".
 */
#define KEYS		(N + 1)
#define before(v)	((v) * KEYS)
#define after(v)	(((v) + 1) * KEYS)
#define row(w)		(watermark[w] * KEYS + (is(shared, w) -> N : (w)))

/* how bounds compare: by watermark and side alone; a place inside a tie is after it */
#define bound(p)	(((p) + KEYS - 1) / KEYS)

/* sets of writers are masks */
#define bit_of(w)		(1 << (w))
#define ALL				(bit_of(N) - 1)
#define is(set, w)		(((set) & bit_of(w)) != 0)
#define with(set, w)	set = set | bit_of(w)
#define without(set, w)	set = set & ~bit_of(w)

byte live;						/* the newest committed version of a row is theirs */
byte has;						/* the target has their version */
byte mark;						/* the checkpoint's mark: their xid is below it */
byte ck_epoch;					/* the epoch of the source at the last run */

/* scratch, always set before it is used */
hidden byte i;
hidden byte k;
hidden byte v;
hidden byte place;

#include "source.pml"
#include "job.pml"

init
{
	atomic {
		run Writer(0);
		run Writer(1);
#if N > 2
		run Writer(2);
#endif
#ifdef BY_TIME
		run Clock();
#endif
#ifdef CRASH
		run Crash();
#endif
		run Job()
	}
}
