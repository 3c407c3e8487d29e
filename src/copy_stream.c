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
#include "jsonb_wire.h"
#include "progress.h"
#include "reject.h"
#include "text_row.h"

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

	/* where rows can be put aside: what a line is turned into a row with */
	bool		puts_aside;
	int			encoding;		/* of the lines */
	TextInput  *input;
	char	  **texts;
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
		progress_bytes(length);
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
format_of(const CopyStream *self)
{
	return self->shape->all_binary && !self->puts_aside ? "binary" : "text";
}

/* what the source's server cannot convert would be an error there, and end the query */
static const char *
encoding_of(const CopyStream *self)
{
	return self->puts_aside && self->encoding >= 0 ? ", ENCODING 'SQL_ASCII'" : "";
}

CopyStream *
copy_stream_open(Remote *remote, const char *sql, const char *lock, const Guard *guard, const Shape *shape,
				 Oid relation, bool puts_aside, MemoryContext context)
{
	CopyStream *self = MemoryContextAllocZero(context, sizeof(CopyStream));

	self->remote = remote;
	self->shape = shape;
	self->puts_aside = puts_aside;
	self->encoding = puts_aside ? remote_encoding(remote) : -1;
	if (puts_aside)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		self->input = text_input_create(shape->desc);
		self->texts = palloc(sizeof(char *) * shape->desc->natts);
		MemoryContextSwitchTo(old);
	}
	remote_copy_start(remote, psprintf("COPY (%s) TO STDOUT (FORMAT %s%s)", sql, format_of(self),
									   encoding_of(self)), lock, guard);
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

	options = list_make2(makeDefElem("format", (Node *) makeString((char *) format_of(self)), -1),
						 makeDefElem("encoding",
									 (Node *) makeString((char *) GetDatabaseEncodingName()), -1));
	self->copy = BeginCopyFrom(NULL, &self->relation, NULL, NULL, false, receive, NIL, options);
	jsonb_wire_install(self->copy, self->shape->desc);
	MemoryContextSwitchTo(old);
}

/* the next line, without the newline at its end; NULL at the end of all. A server sends each as a piece. */
static char *
next_line(CopyStream *self, int *length)
{
	StringInfoData line;

	initStringInfo(&line);
	for (;;)
	{
		if (self->piece_left == 0 && !self->ended)
			take_piece(self, remote_copy_next(self->remote, &self->piece, true));
		if (self->piece_left == 0)
			break;
		appendBinaryStringInfo(&line, self->piece, self->piece_left);
		self->piece_left = 0;
		self->pieces_given++;
		/* a newline in a value is escaped */
		if (line.data[line.len - 1] == '\n')
			break;
	}
	if (line.len == 0)
		return NULL;
	if (line.data[line.len - 1] == '\n')
		line.data[--line.len] = '\0';
	*length = line.len;
	return line.data;
}

/* Reading: rows on their way from the stream to the stage */
typedef struct Reading
{
	CopyStream *stream;
	Stage	   *stage;
	Datum	   *values;
	bool	   *nulls;
	bool		only_arrived;
	StreamState state;
	volatile bool judging;		/* what fails now is the row's own fault */
	char	   *line;			/* as it came */
	int			length;
	bool		is_split;		/* the stream's texts are its values */
} Reading;

/* reads until it has to stop, or comes upon a bad row */
static void
read_lines(void *arg)
{
	Reading    *reading_now = arg;
	CopyStream *self = reading_now->stream;

	do
	{
		char	   *text;

		MemoryContextReset(self->row_context);
		MemoryContextSwitchTo(self->row_context);
		reading_now->is_split = false;
		reading_now->line = next_line(self, &reading_now->length);
		if (reading_now->line == NULL)
		{
			self->exhausted = true;
			reading_now->state = STREAM_ENDED;
			return;
		}
		self->rows_taken = self->pieces_given;
		reading_now->judging = true;
		text = pg_any_to_server(reading_now->line, reading_now->length,
								self->encoding >= 0 ? self->encoding : GetDatabaseEncoding());
		reading_now->judging = false;
		/* it is taken apart in place */
		text_row_split(text == reading_now->line ? pstrdup(text) : text, self->shape->desc->natts, self->texts);
		reading_now->is_split = true;
		reading_now->judging = true;
		text_input_row(self->input, self->texts, reading_now->values, reading_now->nulls);
		if (!stage_put(reading_now->stage, reading_now->values, reading_now->nulls))
		{
			reading_now->state = STREAM_FULL;
			return;
		}
		reading_now->judging = false;
	} while (!reading_now->only_arrived);
	reading_now->state = STREAM_DRY;
}

static StreamState
read_with_rejects(CopyStream *self, Stage *stage, Datum *values, bool *nulls, bool only_arrived)
{
	Reading		work = {.stream = self, .stage = stage, .values = values, .nulls = nulls, .only_arrived = only_arrived};
	MemoryContext old = CurrentMemoryContext;
	ErrorData  *error;

	/* one subtransaction for all the rows up to a bad one */
	while ((error = reject_try(read_lines, &work, &work.judging)) != NULL)
	{
		MemoryContextSwitchTo(self->row_context);
		if (!work.is_split)
			text_row_split(text_row_clean(work.line, work.length, self->encoding),
						   self->shape->desc->natts, self->texts);
		reject_unstaged(stage->rejects, self->texts, work.is_split, error);
		stage->nrejected++;
		work.judging = false;
		MemoryContextSwitchTo(old);
		FreeErrorData(error);
	}
	return work.state;
}

/*
 * The next row as COPY's parser has it. Only the parser says "COPY, line N" in
 * errors, and takes binary text to be in the client's encoding, while what comes
 * is in the database's: what the target does with the row has neither.
 */
static bool
parse_row(CopyStream *self, Datum *values, bool *nulls)
{
	ErrorContextCallback callback = {.callback = CopyFromErrorCallback,.arg = self->copy,.previous = error_context_stack};
	int			encoding = pg_get_client_encoding();
	bool		found;

	error_context_stack = &callback;
	SetClientEncoding(GetDatabaseEncoding());
	found = NextCopyFrom(self->copy, NULL, values, nulls);
	SetClientEncoding(encoding);
	error_context_stack = callback.previous;
	return found;
}

StreamState
copy_stream_read(CopyStream *self, Stage *stage, Datum *values, bool *nulls, bool only_arrived)
{
	CopyStream *outer = reading;
	int			encoding = pg_get_client_encoding();
	volatile StreamState state = STREAM_DRY;
	MemoryContext old;

	if (self->puts_aside)
		return read_with_rejects(self, stage, values, nulls, only_arrived);
	old = MemoryContextSwitchTo(self->row_context);
	PG_TRY();
	{
		reading = self;
		if (self->copy == NULL)
			begin(self);
		do
		{
			MemoryContextReset(self->row_context);
			if (!parse_row(self, values, nulls))
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
