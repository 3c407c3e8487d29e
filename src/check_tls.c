/*
 * check_tls.c
 *		The rule of incload_check on rows that travel in clear.
 *
 * Without sslmode, libpq encrypts if the server offers it, and goes on without
 * if not, or if somebody in between says so. Sockets and this machine's own
 * addresses leave nothing to listen to.
 */
#include "postgres.h"

#include "foreign/foreign.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "check.h"
#include "compat.h"
#include "login.h"

/* an option of the server, else what libpq takes from this process's environment; "" for neither */
static char *
server_option(const ForeignServer *server, const char *name, const char *variable)
{
	const char *value = foreign_option(server->options, name, getenv(variable));

	return pstrdup(value ? value : "");
}

static bool
is_here(const char *host)
{
	return host[0] == '\0' || host[0] == '/' || host[0] == '@' || pg_strcasecmp(host, "localhost") == 0 ||
		strncmp(host, "127.", 4) == 0 || strcmp(host, "::1") == 0;
}

/*
 * The first host of these lists with commas that is another machine; NULL: none is.
 * An address is what is connected to; the name beside it is for certificates.
 */
static char *
other_host(char *hosts, char *addresses)
{
	while (hosts || addresses)
	{
		char	   *host = strsep(&hosts, ",");
		char	   *address = strsep(&addresses, ",");

		if (address && address[0])
			host = address;
		if (host && !is_here(host))
			return host;
	}
	return NULL;
}

void
check_tls(Check *check)
{
	const ForeignServer *server;
	const char *mode;
	const char *host;

	if (!source_is_postgres_fdw(check->job->source))
		return;
	server = GetForeignServer(GetForeignTable(check->job->source)->serverid);
	host = other_host(server_option(server, "host", "PGHOST"), server_option(server, "hostaddr", "PGHOSTADDR"));
	mode = server_option(server, "sslmode", "PGSSLMODE");
	if (host == NULL ||
		strcmp(mode, "require") == 0 || strcmp(mode, "verify-ca") == 0 || strcmp(mode, "verify-full") == 0)
		return;
	check_add(check, "warning", "source_without_tls",
			  psprintf("server %s may send rows and passwords from and to %s in clear: its sslmode is %s; verify-full also makes sure who it is, and needs the certificate of who has signed its own (sslrootcert)",
					   server->servername, host, mode[0] ? mode : "prefer"),
			  psprintf("ALTER SERVER %s OPTIONS (%s sslmode 'require');", quote_identifier(server->servername),
					   foreign_option(server->options, "sslmode", NULL) ? "SET" : "ADD"));
}
