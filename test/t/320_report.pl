# incload_report(): what the page says is what SQL says, what it must not say it
# does not say, and a browser shows it, on a phone too.
use strict;
use warnings;

use JSON::PP;
use MIME::Base64 qw(encode_base64);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

use IncloadBrowser;
use IncloadTest;

my ($source, $target) = two_nodes();
my $dir = PostgreSQL::Test::Utils::tempdir();

sub sql { return $target->safe_psql('postgres', $_[0]) }

# page [ROLE [ARGUMENT [ENCODING]]]: as it comes from psql, in a file
sub page
{
	my ($role, $details, $encoding) = @_;
	local $ENV{PGCLIENTENCODING} = $encoding || 'UTF8';
	my $html = as_role($target, $role || 'loader', 'SELECT incload_report(' . ($details // '') . ')');

	append_to_file("$dir/new.html", $html);
	rename("$dir/new.html", "$dir/report.html");
	return $html;
}

# before there is a job
my $html = page();
like($html, qr/^<!DOCTYPE html>\n<html lang="en">/, 'a page');
like($html, qr/<h1>No job yet<\/h1>/, 'without a job it says so');
like($html, qr/SELECT incload_create_job\(&#x27;orders&#x27;/, 'and how to make one');
unlike($html, qr/<table/, 'and no more');

# Jobs with a history. Names that would be markup, or run from right to left.
my $long = 'n' x 63;
my @names = ('<script>alert(1)</script>', q{it's "quoted" & 'so' `on` on=x}, "שלום\xe2\x80\xae ع", $long, 'café');
$source->safe_psql('postgres', q{
	CREATE TABLE items (id int PRIMARY KEY, v text, updated_at timestamptz NOT NULL DEFAULT now());
	INSERT INTO items (id, v) SELECT i, 'v' FROM generate_series(1, 1000) i});
foreign_table($target, 'items');
my %options = (orders => q{"filter": "v <> 'filter-4711'", "pre_sql": "SELECT 'token-4711'", "transforms": {"v": "md5(v || 'salt-4711')"}});
foreach my $job (qw(orders late_one failing computed idle unmeasured), map { "named_$_" } 0 .. $#names)
{
	my $options = ($options{$job} // '') =~ s/'/''/gr;

	as_loader($target, "SELECT incload_create_job('$job', 'src.items', 'dw.items', 'upsert', 'updated_at', '{id}', options => '{$options}')");
}
# incload_create_job refuses some of them, and the page does not count on it
for my $i (0 .. $#names)
{
	$target->safe_psql('postgres', "UPDATE incload.job_store SET job = \$\$$names[$i]\$\$ WHERE job = 'named_$i'");
}
as_loader($target, q{SELECT incload_pause('idle')});
$target->safe_psql('postgres', q{
	CREATE ROLE other LOGIN; GRANT USAGE, CREATE ON SCHEMA dw TO other;
	CREATE TABLE private (id int PRIMARY KEY, updated_at timestamptz NOT NULL DEFAULT now());
	GRANT ALL ON private TO other});
as_role($target, 'other', q{SELECT incload_create_job('private_job', 'public.private', 'dw.private', 'upsert', 'updated_at', '{id}')});
as_loader($target, q{SELECT incload_run('orders')});
$target->safe_psql('postgres', q{
	UPDATE incload.job_store SET options = options || '{"freshness_slo": "10 minutes"}' WHERE job IN ('orders', 'late_one', 'failing');
	UPDATE incload.job_store SET options = options || '{"freshness_slo": "10 hours"}' WHERE job = 'computed';
	CREATE FUNCTION ran(name text, ago interval, took interval, state text, n bigint, trouble text DEFAULT NULL) RETURNS void LANGUAGE sql AS
	$$
		INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, rows_read,
			rows_inserted, rows_updated, rows_unchanged, rows_rejected, batches, bytes_read, lag, sqlstate, error)
		SELECT nextval('incload.run_id_seq'), job_id, job, owner, 'incremental', state, 'schedule', now() - ago, now() - ago + took, n,
			n / 2, n / 4, n - n / 2 - n / 4 - (n > 7)::int, (n > 7)::int, 1, n * 100, '1 s', CASE WHEN trouble IS NOT NULL THEN '08006' END, trouble
		FROM incload.job_store WHERE job = name
	$$;
	SELECT ran('computed', '20:01:00', '1 min', 'succeeded', 1234567), ran('computed', '10 hours', '3 s', 'failed', 0, E'could not connect\nin two lines'),
		ran('computed', '02:01:00', '1 min', 'succeeded', 12);
	SELECT ran('late_one', i * interval '20 min', '2.5 s', 'succeeded', 100 + i) FROM generate_series(100, 3, -1) i;
	SELECT ran('failing', i * interval '5 min', '1 s', 'succeeded', i % 50) FROM generate_series(8000, 40, -1) i;
	SELECT ran('failing', i * interval '5 min', '10 s', 'failed', 0, 'could not connect to server "source": <b>timeout</b> & "more"') FROM generate_series(39, 1, -1) i;
	SELECT ran('unmeasured', i * interval '1 day', '800 ms', 'succeeded', i) FROM generate_series(20, 1, -1) i;
	INSERT INTO incload.reject_store (job_id, run_id, key, row, is_exact, sqlstate, error)
	SELECT job_id, 1, '{"id": "1"}', '{"v": "row-4711"}', true, CASE WHEN i % 3 = 0 THEN '22003' ELSE '23514' END, 'violates check constraint "v_check"'
	FROM incload.job_store, generate_series(1, 1200) i WHERE job = 'failing';
	INSERT INTO incload.reconcile_store (run_id, job_id, job, owner, at, mode, source_rows, target_rows, ranges, ranges_differing,
		rows_missing, rows_extra, rows_changed, rows_duplicate, rows_conflicting, rows_repaired)
	SELECT 900000 + i, job_id, job, owner, now() - (9 - i) * interval '1 day', 'hash', 1234567, 1234560, 16, i, 7 * (i / 2), 0, 2 * (i / 2), i % 2, 0, 18 * (i / 4)
	FROM incload.job_store, generate_series(0, 4) i WHERE job = 'failing';
	INSERT INTO incload.event_store (job_id, job, owner, severity, code, message)
	SELECT job_id, job, owner, s, 'horizon_held', 'held by <i>somebody</i>'
	FROM incload.job_store, unnest('{page,ticket,info}'::text[]) s WHERE job IN ('failing', 'private_job');
	-- what was when a job had another owner
	INSERT INTO incload.event_store (job_id, job, owner, severity, code, message)
	SELECT job_id, job, 'other', 'page', 'source_changed', 'in former times' FROM incload.job_store WHERE job = 'unmeasured';
	INSERT INTO incload.run_store (run_id, job_id, job, owner, kind, status, trigger, started_at, finished_at, sqlstate, error)
	SELECT nextval('incload.run_id_seq'), job_id, job, 'other', 'backfill', 'failed', 'call', now(), now(), '08006', 'of another owner' FROM incload.job_store WHERE job = 'unmeasured'});

# what the source of the page says
$html = page();
unlike($html, qr/[^\x00-\x7f]/, 'the page is ASCII');
is((() = $html =~ /<script/g), 1, 'it has the one script');
unlike($html, qr/<(?:b>timeout|i>)/, 'nor markup from errors and events');
unlike($html, qr/(?:src|href|action|url)\s*[=(]\s*["']?(?!#|data:,)[a-z]+:/i, 'and no address');
unlike($html, qr/\bstyle=|\bon[a-z]+=["']/, 'and no style or handler that the policy would refuse');
unlike($html, qr/4711|reader|s secret/, 'and no secret: no password, no option, no row');
unlike($html, qr/private_job/, 'nor the job of somebody else');
unlike($html, qr/in former times|of another owner/, 'nor what was when a job was his');
like(page('postgres'), qr/private_job.*in former times.*of another owner.*in former times/s, 'which a superuser sees');
like(page('other'), qr/None of 1 job is failing or late.*private_job.*held by/s, 'and its owner, with its events');
unlike(page('other'), qr/late_one|failing<\/bdi>/, 'who sees no others');
like(page('loader', 20, 'LATIN1'), qr/<bdi>caf&#xE9;<\/bdi>/, 'and a client of another encoding gets the same');
like($html, qr/<bdi>&#x5E9;&#x5DC;&#x5D5;&#x5DD;&#x202E; &#x639;<\/bdi>/, 'as names are written in ASCII, apart from what stands around them');
fails_with($target, 'loader', 'SELECT incload_report(-1)', '22023', qr/goes from 0 to 1000/, 'a wrong number is refused');
is((() = page('loader', 0) =~ /class="plots"/g), 0, 'none in detail');

# Other encodings of the database; bytes of none are shown as such.
foreach my $case ([ 'LATIN1', q{convert_from('\\x636166e9', 'LATIN1')}, 'caf&#xE9;' ], [ 'SQL_ASCII', q{'caf' || convert_from('\\xe9', 'SQL_ASCII')}, 'caf\xE9' ],
	[ 'SQL_ASCII', q{convert_from('\\x636166c3a9', 'SQL_ASCII')}, 'caf&#xE9;' ])
{
	my ($encoding, $name, $shown) = @$case;

	$target->safe_psql('postgres', "CREATE DATABASE other ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	like($target->safe_psql('other', qq{CREATE EXTENSION incload; CREATE TABLE a (id int PRIMARY KEY);
		SELECT FROM incload_create_job('a', 'a', 'b', 'full'); UPDATE incload.job_store SET job = $name; SELECT incload_report()}),
		qr/<bdi>\Q$shown\E<\/bdi>/, "a name in a database of $encoding");
	$target->safe_psql('postgres', 'DROP DATABASE other');
}

if (!IncloadBrowser::program())
{
	note('no chromium here: the page is not looked at');
	done_testing();
	exit;
}

my $browser = IncloadBrowser->start;
my $url = "file://$dir/report.html";

# Numbers, read back out of the page, against SQL.
sub state_of { return q{CASE WHEN s.state = 'ok' AND s.freshness > (j.options->>'freshness_slo')::interval THEN 'late' ELSE s.state END} }
my $before = sql(q{SELECT jsonb_object_agg(job, extract(epoch FROM freshness)) FROM incload.status});
page('postgres');
my $after = sql(q{SELECT jsonb_object_agg(job, extract(epoch FROM freshness)) FROM incload.status});
$browser->visit($url);
my $rows = $browser->value(q{Array.from(document.querySelectorAll('.jobs tbody tr')).map(r => Array.from(r.cells).map(c => c.textContent))});
is(join("\n", map { join('|', @$_[0, 1, 3, 6, 8, 9]) } @$rows), sql(q{
	SELECT string_agg(concat_ws('|', s.job, x.state, CASE WHEN j.options ? 'freshness_slo' THEN extract(epoch FROM (j.options->>'freshness_slo')::interval)::int / CASE WHEN s.job = 'computed' THEN 3600 ELSE 60 END
		|| CASE WHEN s.job = 'computed' THEN ' h' ELSE ' min' END ELSE '–' END, coalesce(to_char(s.last_rows, 'FM999,999,999'), '–'), to_char(s.rejects, 'FM999,999,999'), coalesce(s.last_error, '')), E'\n'
		ORDER BY array_position('{failing,late,paused,never run,running,ok}', x.state), extract(epoch FROM s.freshness) / extract(epoch FROM (j.options->>'freshness_slo')::interval) DESC NULLS LAST, s.job)
	FROM incload.status s JOIN incload.job j USING (job), LATERAL (SELECT } . state_of() . q{ AS state) x}),
	'each job with state, objective, rows, rejects and error, in this order');
my $fresh = $browser->value(q{Object.fromEntries(Array.from(document.querySelectorAll('.jobs tbody tr')).map(r => [r.cells[0].textContent, r.cells[2].dataset.seconds]))});
my ($least, $most) = map { JSON::PP->new->decode($_) } ($before, $after);
is(join(', ', grep { defined $least->{$_} ? !($least->{$_} <= $fresh->{$_} && $fresh->{$_} <= $most->{$_}) : $fresh->{$_} ne '' } sort keys %$fresh), '',
	'and freshness is between that before and that after');
is($browser->value(q{Array.from(document.querySelectorAll('.tiles li')).map(t => t.textContent.replace(/\s+/, ' ')).join(', ')}),
	sql(q{SELECT string_agg((SELECT count(*) FROM incload.status s JOIN incload.job j USING (job) WHERE } . state_of() . q{ = w) || ' ' || w, ', ' ORDER BY o)
		FROM unnest('{failing,late,paused,never run,running,ok}'::text[]) WITH ORDINALITY u(w, o)}), 'jobs by state are counted');
is($browser->value(q{document.querySelector('h1').textContent}), '1 failing, 1 late of 12 jobs', 'and the headline says what is wrong');
is($browser->value(q{Array.from(document.querySelectorAll('.totals b')).slice(0, 3).map(b => b.textContent.replace(/,/g, '')).join()}),
	sql(q{SELECT concat_ws(',', count(*) FILTER (WHERE status = 'succeeded'), count(*) FILTER (WHERE status = 'failed'), sum(rows_read)) FROM incload.run WHERE started_at > now() - interval '24 hours'}), 'the runs of a day');

# section JOB EXPRESSION: of the section's element "e"
sub section
{
	my ($job, $expression) = @_;
	my $id = sql("SELECT job_id FROM incload.job WHERE job = '$job'");
	return $browser->value("(e => $expression)(document.getElementById('job-$id'))");
}
sub cells { return "Array.from(e.querySelectorAll('.$_[0] tbody tr')).map(r => Array.from(r.cells).slice($_[1]).map(c => c.textContent.replace(/,/g, '')).join('|')).join('\\n')" }

is(section('failing', cells('rejects', 0) . '.replace(/(\|[0-9]+)\|[0-9: -]+\|[0-9: -]+\|/g, "$1|")'),
	sql(q{SELECT string_agg(concat_ws('|', sqlstate, n, 'violates check constraint "v_check"'), E'\n' ORDER BY n DESC) FROM (SELECT sqlstate, count(*) n FROM incload.reject GROUP BY 1) r}), 'rejects by SQLSTATE');
is(section('failing', cells('reconciles', 1)),
	sql(q{SELECT string_agg(concat_ws('|', CASE run_id - 900000 WHEN 0 THEN 'equal' WHEN 4 THEN 'repaired' ELSE 'differs' END, mode, source_rows, target_rows, rows_missing, rows_extra, rows_changed, rows_duplicate, rows_conflicting, rows_repaired), E'\n' ORDER BY run_id DESC)
		FROM incload.reconcile WHERE job = 'failing'}), 'comparisons');
is(section('late_one', cells('runs', 2)),
	sql(q{SELECT string_agg(concat_ws('|', kind, status, '2.5 s', rows_read, rows_inserted, rows_updated, rows_deleted, rows_unchanged, rows_superseded, rows_suppressed, rows_rejected, rows_pruned, '–'), E'\n' ORDER BY run_id DESC)
		FROM (SELECT * FROM incload.run WHERE job = 'late_one' ORDER BY run_id DESC LIMIT 12) r}), 'the last runs');
is(section('failing', q{Array.from(e.querySelectorAll('.runs-day, .runs-month')).map(d => d.textContent.replace(/,/g, '')).join('; ')}),
	sql(q{SELECT string_agg((SELECT count(*) FILTER (WHERE status = 'succeeded') || ' ok ' || count(*) FILTER (WHERE status = 'failed') || ' not' FROM incload.run WHERE job = 'failing' AND started_at > now() - d), '; ' ORDER BY d)
		FROM unnest('{24 hours,720 hours}'::interval[]) d}), 'how many succeeded');
is(section('failing', q{Array.from(e.querySelectorAll('.events .severity')).map(s => s.textContent).join()}), 'ticket,page', 'pages and tickets, and no news');
is(section('computed', q{Array.from(e.querySelectorAll('.p')).slice(2).map(p => ['rect.changed', 'text.failed', 'rect.took', 'rect.hollow'].map(w => p.querySelectorAll(w).length).join()).join('; ')}), '2,1,0,0; 0,0,2,1', 'a bar a run, a cross and a hollow bar where it failed');

# Freshness, computed by hand: 1 min after the first run, then growing to 18 h 1 min; 8 h 1 min of 20 h above 10 h.
is(section('computed', q{e.querySelector('figcaption b').textContent}), '18 h 1 min', 'the worst freshness of a day');
my $within = section('computed', q{parseFloat(e.querySelector('.within-day').textContent)});
my $later = sql(q{SELECT 100 - 100 * extract(epoch FROM interval '08:01:00') / extract(epoch FROM now() - min(finished_at)) FROM incload.run WHERE job = 'computed' AND status = 'succeeded'});
ok($within >= 59.91 && $within <= $later, 'the part of the time that was within the objective') or diag("$within is not from 59.91 to $later");
is(section('computed', q{Array.from(e.querySelector('.p').querySelectorAll('rect.over')).map(r => r.textContent).filter(t => / to 18 h 1 min$/.test(t)).length}), 1, 'one bin has the worst');
cmp_ok(section('computed', q{e.querySelector('.p').querySelectorAll('rect.over').length}), '>=', 33, 'eight hours and a minute above the objective are 33 bins or 34');
cmp_ok(section('computed', q{e.querySelector('.p').querySelectorAll('rect.over').length}), '<=', 34, 'and no more');
like(section('unmeasured', q{e.querySelector('.p desc').textContent}), qr/^Largest freshness 1 d.*No objective is set/, 'without an objective there is none');
is(section('idle', q{e.querySelectorAll('.p').length + e.lastElementChild.textContent}), '0There was no run yet.', 'a job that never ran has no plots');

# It is what it seems, and asks for nothing.
is($browser->value(q{Array.from(document.querySelectorAll('.jobs tbody bdi')).map(b => b.textContent).sort().join('\n')}),
	join("\n", sort(@names, qw(orders late_one failing computed idle unmeasured private_job))), 'names are shown as they are');
is(join(', ', map { $_->{request}{url} } $browser->events('Network.requestWillBeSent')), $url, 'nothing is asked for but the page');
is(join(', ', map { $_->{entry}{text} } $browser->events('Log.entryAdded')), '', 'and its policy refuses nothing');
is($browser->value(q{new Promise(done => { addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));
	document.body.appendChild(document.createElement('img')).src = 'https://127.0.0.1/x.png'; setTimeout(() => done('nothing'), 5000); })}), 'img-src', 'which does refuse');
is($browser->value(q{(() => { const i = document.querySelector('.filter input'); i.value = 'COULD NOT'; i.dispatchEvent(new Event('input'));
	return Array.from(document.querySelectorAll('.jobs tbody tr')).filter(r => r.offsetHeight > 0).map(r => r.cells[0].textContent).join() + ': ' + document.querySelector('output').textContent; })()}),
	'failing: 1 of 12 jobs', 'the table can be searched');
$browser->call('Emulation.setScriptExecutionDisabled', { value => JSON::PP::true });
$browser->visit($url);
is($browser->value(q{document.querySelectorAll('.jobs tbody tr').length + ' ' + (document.querySelector('.filter').offsetHeight)}), '12 0', 'and without its script all is there');
$browser->call('Emulation.setScriptExecutionDisabled', { value => JSON::PP::false });

# What is hard to see or to hear: letters that do not stand out, plots without a text, headings out of order.
my $faint = q{(() => {
	const rgb = c => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 && m[3] < 1 ? null : m.slice(0, 3); };
	const light = c => { const [r, g, b] = c.map(v => v / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
	const behind = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor); if (c) return c; } return [255, 255, 255]; };
	const found = new Set();
	document.querySelectorAll('body *').forEach(e => {
		if (!Array.from(e.childNodes).some(n => n.nodeType === 3 && n.data.trim()) || ['SCRIPT', 'STYLE', 'title', 'desc'].includes(e.tagName)) return;
		const style = getComputedStyle(e), color = rgb(e instanceof SVGElement ? style.fill : style.color);
		const [a, b] = [light(color), light(behind(e))].sort((x, y) => y - x);
		if ((a + 0.05) / (b + 0.05) < 4.5) found.add(e.tagName + '.' + (e.className.baseVal ?? e.className) + ' ' + color + ' on ' + behind(e));
	});
	return Array.from(found).join('; '); })()};
my $pixels = q{async base64 => {
	const bytes = Uint8Array.from(atob(base64), c => c.charCodeAt(0));
	const image = await createImageBitmap(new Blob([bytes], { type: 'image/png' }));
	const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext('2d');
	context.drawImage(image, 0, 0);
	const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
	return { colors: new Set(pixels).size, blank: pixels.filter(p => p === pixels[0]).length / pixels.length, corner: pixels[0] & 255 }; }};
my %size = (phone => [ 390, 844 ], desktop => [ 1280, 900 ]);
my $shots = $ENV{INCLOAD_SCREENSHOTS};
my %brightness;
append_to_file("$shots/report.html", slurp_file("$dir/report.html")) if $shots;
foreach my $device (sort keys %size)
{
	foreach my $scheme (qw(light dark))
	{
		my ($width, $height) = @{ $size{$device} };

		$browser->screen($width, $height, $device eq 'phone', $scheme);
		$browser->visit($url);
		is($browser->value($faint), '', "$device, $scheme: letters stand out");
		is($browser->value(q{document.documentElement.scrollWidth - innerWidth}), 0, "$device, $scheme: it is as wide as the screen");
		my $png = $browser->screenshot;
		if ($shots)
		{
			append_to_file("$shots/$device-$scheme.png", $png);
			append_to_file("$shots/$device-$scheme-whole.png", $browser->screenshot(1));
		}
		is(join(' ', unpack('A8 N A4 N2', $png)), join(' ', "\x89PNG\r\n\x1a", 13, 'IHDR', $width, $height) , "$device, $scheme: a picture of that size")
		  or diag(unpack('H*', substr($png, 0, 32)));
		$browser->visit('about:blank');
		my $seen = $browser->value('(' . $pixels . ')("' . encode_base64($png, '') . '")');
		cmp_ok($seen->{colors}, '>', 50, "$device, $scheme: of many colours");
		cmp_ok($seen->{blank}, '<', 0.97, "$device, $scheme: and not blank");
		$brightness{"$device $scheme"} = $seen->{corner} > 200 ? 'light' : $seen->{corner} < 60 ? 'dark' : $seen->{corner};
	}
}
is_deeply(\%brightness, { map { my $d = $_; map { ("$d $_" => $_) } qw(light dark) } keys %size }, 'and as light or dark as asked for');
$browser->visit($url);
is($browser->value(q{Array.from(document.querySelectorAll('svg:not([aria-hidden])')).filter(s => s.getAttribute('role') !== 'img' || s.getAttribute('aria-labelledby').split(' ').some(i => !document.getElementById(i).textContent)).length}), 0, 'each plot has a title and a description');
is($browser->value(q{(() => { const ids = Array.from(document.querySelectorAll('[id]')).map(e => e.id); return ids.length - new Set(ids).size; })()}), 0, 'no id is there twice');
is($browser->value(q{(() => { let last = 0, jumps = 0; document.querySelectorAll('h1, h2, h3, h4').forEach(h => { const n = +h.tagName[1]; jumps += n > last + 1; last = n; }); return jumps; })()}), 0, 'headings come in order');
is($browser->value(q{Array.from(document.querySelectorAll('.jobs a')).filter(a => !document.querySelector(a.getAttribute('href'))).length}), 0, 'and links lead somewhere');

# a thousand jobs
$target->safe_psql('postgres', q{
	INSERT INTO incload.job_store (job, owner, owner_oid, source, source_oid, target, target_oid, database, strategy, watermark, key, search_path)
	SELECT 'job ' || i, owner, owner_oid, source, source_oid, target, target_oid, database, strategy, watermark, key, search_path
	FROM incload.job_store, generate_series(1, 989) i WHERE job = 'orders';
	SELECT ran('job ' || i, '1 hour', '1 s', CASE WHEN i % 100 = 0 THEN 'failed' ELSE 'succeeded' END, i, CASE WHEN i % 100 = 0 THEN repeat('x', 1000) END) FROM generate_series(1, 989) i});
$html = page();
cmp_ok(length($html), '<', 3_000_000, 'a thousand jobs are a page of less than 3 MB') or diag(length($html));
note('bytes of a page of a thousand jobs: ' . length($html));
$browser->visit($url);
is($browser->value(q{[document.querySelectorAll('.jobs tbody tr').length, document.querySelectorAll('section.job').length, document.querySelector('.left-out').textContent.replace(/;.*/, '')].join('; ')}),
	'1000; 20; The worst 20 of 1,000 jobs. The other 980 are in the table alone', 'all in the table, the worst in detail, and what is left out is told');
is($browser->value(q{Array.from(document.querySelectorAll('section.job .state')).slice(0, 12).map(s => s.textContent).join()}),
	join(',', ('failing') x 10, 'late', 'paused'), 'the worst first');
$browser->stop;

done_testing();
