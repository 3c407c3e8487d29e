/*
 * copy_stream.c
 *		One COPY that a server sends, and the rows in it.
 *
 * Where every column has the same binary form on both sides, rows come in
 * COPY's binary format, else as text. The server's own COPY code parses them,
 * from a callback that waits on the latch.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "commands/copy.h"
#include "mb/pg_wchar.h"
#include "nodes/makefuncs.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"

#include "compat.h"
#include "copy_stream.h"

struct CopyStream
{
	Remote	   *remote;
	MemoryContext row_context;
	const Shape *shape;
	MemoryContext context;
	CopyFromState copy;			/* NULL before the first read */
	RelationData relation;		/* stands for the stage, of which there is no relation */
	FormData_pg_class relation_form;
	const char *piece;			/* what is left of the last piece received */
	int			piece_left;
	bool		ended;			/* no more comes */
	bool		exhausted;		/* and all has been taken */
	int64		bytes;

	/* a server sends each row as a piece of its own */
	int64		pieces_given;
	int64		rows_taken;
};

/*
 * COPY's callback has no argument of its own. A value's input function can run
 * another job (a domain's check can do anything): whoever sets this puts back
 * what was there.
 */
static CopyStream *reading = NULL;

static void
take_piece(CopyStream *self, int length)
{
	if (length < 0)
		self->ended = true;
	else
	{
		self->piece_left = length;
		self->bytes += length;
	}
}

static int
receive(void *buffer, int min_bytes, int max_bytes)
{
	CopyStream *self = reading;
	char	   *to = buffer;
	int			got = 0;

	while (got < max_bytes)
	{
		int			n;

		if (self->piece_left == 0)
		{
			if (self->ended)
				break;
			/* what has arrived is taken; more is waited for only where it is needed */
			n = remote_copy_next(self->remote, &self->piece, got < min_bytes);
			if (n == 0)
				break;
			take_piece(self, n);
			if (self->ended)
				break;
		}
		n = Min(self->piece_left, max_bytes - got);
		memcpy(to + got, self->piece, n);
		self->piece += n;
		self->piece_left -= n;
		got += n;
		if (self->piece_left == 0)
			self->pieces_given++;
	}
	return got;
}

/* the relation that COPY's parser asks for column types and for its name in messages */
static void
make_relation(CopyStream *self, const Shape *shape, Oid relation)
{
	self->relation.rd_att = shape->desc;
	self->relation.rd_rel = &self->relation_form;
	self->relation.rd_id = relation;
	self->relation_form.relkind = RELKIND_RELATION;
	namestrcpy(&self->relation_form.relname, get_rel_name(relation));
}

static const char *
format_of(const Shape *shape)
{
	return shape->all_binary ? "binary" : "text";
}

CopyStream *
copy_stream_open(Remote *remote, const char *sql, const char *lock, const Guard *guard, const Shape *shape,
				 Oid relation, MemoryContext context)
{
	CopyStream *self;

	remote_copy_start(remote, psprintf("COPY (%s) TO STDOUT (FORMAT %s)", sql, format_of(shape)), lock, guard);
	self = MemoryContextAllocZero(context, sizeof(CopyStream));
	self->remote = remote;
	self->shape = shape;
	self->context = context;
	self->row_context = AllocSetContextCreate(context, "incload row", ALLOCSET_DEFAULT_SIZES);
	make_relation(self, shape, relation);
	return self;
}

/* the parser; waits for the first row, as what stands before it comes with it */
static void
begin(CopyStream *self)
{
	MemoryContext old = MemoryContextSwitchTo(self->context);
	List	   *options;

	options = list_make2(makeDefElem("format", (Node *) makeString((char *) format_of(self->shape)), -1),
						 makeDefElem("encoding",
									 (Node *) makeString((char *) GetDatabaseEncodingName()), -1));
	self->copy = BeginCopyFrom(NULL, &self->relation, NULL, NULL, false, receive, NIL, options);
	MemoryContextSwitchTo(old);
}

StreamState
copy_stream_read(CopyStream *self, Stage *stage, Datum *values, bool *nulls, bool only_arrived)
{
	ErrorContextCallback callback;
	CopyStream *outer = reading;
	int			encoding = pg_get_client_encoding();
	volatile StreamState state = STREAM_DRY;
	MemoryContext old = MemoryContextSwitchTo(self->row_context);

	PG_TRY();
	{
		reading = self;
		if (self->copy == NULL)
			begin(self);
		callback.callback = CopyFromErrorCallback;
		callback.arg = self->copy;
		callback.previous = error_context_stack;
		error_context_stack = &callback;
		/* binary text is taken to be in the client's encoding; what comes is in the database's */
		SetClientEncoding(GetDatabaseEncoding());
		do
		{
			MemoryContextReset(self->row_context);
			if (!NextCopyFrom(self->copy, NULL, values, nulls))
			{
				self->exhausted = true;
				state = STREAM_ENDED;
				break;
			}
			self->rows_taken++;
			if (!stage_put(stage, values, nulls))
			{
				state = STREAM_FULL;
				break;
			}
		} while (!only_arrived || self->rows_taken < self->pieces_given);
	}
	PG_FINALLY();
	{
		reading = outer;
		SetClientEncoding(encoding);
	}
	PG_END_TRY();

	/* PG_TRY has put back what was there, after an error, and this does without one */
	error_context_stack = callback.previous;
	MemoryContextSwitchTo(old);
	return state;
}

bool
copy_stream_arrived(CopyStream *self)
{
	int			length;

	if (self->rows_taken < self->pieces_given || self->piece_left > 0 || self->ended)
		return true;
	if (!remote_copy_arrived(self->remote, &self->piece, &length))
		return false;
	take_piece(self, length);
	return true;
}

bool
copy_stream_ended(const CopyStream *self)
{
	return self->exhausted;
}

int64
copy_stream_bytes(CopyStream *self)
{
	int64		bytes = self->bytes;

	self->bytes = 0;
	return bytes;
}

void
copy_stream_close(CopyStream *self)
{
	/* rows are left that nobody wants: only ending the session stops them */
	if (!self->ended)
		remote_disconnect(self->remote);
	if (self->copy)
		EndCopyFrom(self->copy);
}
