/*
 * report_page.c
 *		What is the same on every report: its style, its script, its icons, and
 *		the policy that lets nothing else in.
 *
 * The colours are from Okabe and Ito's palette, or moved from it until each
 * stands out from its background by 3 to 1 (letters by 4.5 to 1) and from each
 * other one for eyes without red, green or blue receptors. No state is told by
 * colour alone: each has an icon of its own shape, and its word.
 */
#include "postgres.h"

#include "common/base64.h"
#include "common/cryptohash.h"
#include "common/sha2.h"

#include "report.h"
#include "report_html.h"

static const char style[] =
	":root{color-scheme:light dark;--bg:#f7f8f9;--card:#ffffff;--ink:#1b2129;--soft:#56616d;--line:#dde2e7;--grid:#e8ecf0;\n"
	"--link:#0b5cad;--ok:#00745a;--late:#b87a00;--failing:#9e1b46;--paused:#5f6b7a;--running:#1c6fd1;\n"
	"--data:#0072b2;--same:#8496a6;--over:#d55e00;--tint:#fbeef2}\n"
	"@media (prefers-color-scheme:dark){:root{--bg:#12161b;--card:#1b1f24;--ink:#e6eaee;--soft:#a3aeb9;--line:#323a43;--grid:#2a3139;\n"
	"--link:#8ab8ff;--ok:#34c79a;--late:#f0c453;--failing:#ff6b8a;--paused:#9aa6b2;--running:#7aa8ff;\n"
	"--data:#56b4e9;--same:#66788a;--over:#ff8a4c;--tint:#33202a}}\n"
	"*{box-sizing:border-box}\n"
	"html{-webkit-text-size-adjust:100%;text-size-adjust:100%;scroll-behavior:smooth;scroll-padding-top:.75rem}\n"
	"@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}\n"
	"body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.45 system-ui,-apple-system,\"Segoe UI\",Roboto,\"Noto Sans\",\"DejaVu Sans\",sans-serif}\n"
	"header,main,footer{max-width:82rem;margin:0 auto;padding:0 clamp(.75rem,3vw,2rem)}\n"
	"header{padding-top:1.25rem}\n"
	"h1{font-size:1.6rem;line-height:1.2;margin:.1rem 0 .9rem;font-weight:650;letter-spacing:-.01em}\n"
	"h2{font-size:1.1rem;margin:1.9rem 0 .6rem;font-weight:650}\n"
	"h3{font-size:1.05rem;margin:0;font-weight:650;display:flex;flex-wrap:wrap;gap:.2rem .8rem;align-items:baseline}\n"
	"h3 bdi,.jobs th bdi,.meta bdi{overflow-wrap:anywhere}\n"
	"h4{font-size:.9rem;margin:1.1rem 0 .35rem;font-weight:650}\n"
	"p{margin:.3rem 0}\n"
	"a{color:var(--link);text-underline-offset:.15em}\n"
	"a:focus-visible,summary:focus-visible,.scroll:focus-visible,input:focus-visible{outline:2px solid var(--link);outline-offset:2px}\n"
	"code{font-family:ui-monospace,\"SFMono-Regular\",Menlo,Consolas,\"DejaVu Sans Mono\",monospace;font-size:.88em;overflow-wrap:anywhere}\n"
	"pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.8rem 1rem;overflow-x:auto}\n"
	"pre code{white-space:pre-wrap}\n"
	".meta{color:var(--soft);font-size:.87rem}\n"
	".tiles{list-style:none;margin:0;padding:0;display:grid;grid-template-columns:repeat(auto-fit,minmax(7.2rem,1fr));gap:.5rem}\n"
	".tiles li{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.5rem .75rem .55rem}\n"
	".tiles b{display:block;font-size:1.5rem;line-height:1.2;font-weight:650;font-variant-numeric:tabular-nums}\n"
	".tiles .zero b{color:var(--soft);font-weight:400}\n"
	".totals{margin-top:.7rem;color:var(--soft);font-size:.92rem}\n"
	".totals b{color:var(--ink);font-weight:600}\n"
	".state{display:inline-flex;align-items:center;gap:.38em;white-space:nowrap;font-size:.9rem;font-weight:500}\n"
	".icon{width:1em;height:1em;flex:none}\n"
	".failing .icon{color:var(--failing)}.late .icon{color:var(--late)}.paused .icon,.never .icon{color:var(--paused)}\n"
	".running .icon{color:var(--running)}.ok .icon{color:var(--ok)}\n"
	".scroll{overflow:auto;max-height:78vh;background:var(--card);border:1px solid var(--line);border-radius:8px}\n"
	"table{border-collapse:separate;border-spacing:0;width:100%;font-size:.87rem;font-variant-numeric:tabular-nums}\n"
	"caption{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}\n"
	"th,td{padding:.34rem .6rem;text-align:left;vertical-align:top;border-top:1px solid var(--grid);white-space:nowrap}\n"
	"thead th{position:sticky;top:0;z-index:2;background:var(--card);color:var(--soft);font-weight:500;border-top:0;border-bottom:1px solid var(--line)}\n"
	"tbody tr:first-child>*{border-top:0}\n"
	"tbody th{font-weight:500}\n"
	".n{text-align:right}\n"
	".wide{white-space:normal;min-width:16rem;overflow-wrap:anywhere}\n"
	".jobs th:first-child{position:sticky;left:0;background:var(--card);z-index:1;max-width:24rem;white-space:normal;min-width:11rem;border-right:1px solid var(--grid)}\n"
	".jobs thead th:first-child{z-index:3}\n"
	".jobs .wide{min-width:20rem}\n"
	".filter{display:flex;flex-wrap:wrap;gap:.3rem 1rem;align-items:center;margin:0 0 .5rem;font-size:.9rem}\n"
	".filter[hidden]{display:none}\n"
	".filter input{font:inherit;color:inherit;background:var(--card);border:1px solid var(--soft);border-radius:6px;padding:.25rem .5rem;margin-left:.4rem;width:16rem;max-width:60vw}\n"
	".filter input::placeholder{color:var(--soft);opacity:1}\n"
	".job{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:.9rem clamp(.7rem,2vw,1.2rem) 1rem;margin:0 0 .9rem}\n"
	".error{background:var(--tint);border-left:3px solid var(--failing);padding:.35rem .7rem;border-radius:0 4px 4px 0;font-size:.9rem;overflow-wrap:anywhere}\n"
	".facts{display:flex;flex-wrap:wrap;gap:.35rem 1.6rem;margin:.6rem 0 .8rem}\n"
	".facts div{min-width:0}\n"
	"dt{color:var(--soft);font-size:.78rem}\n"
	"dd{margin:0;font-size:.92rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}\n"
	".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,26rem),1fr));gap:.9rem 2rem}\n"
	"figure{margin:0;min-width:0}\n"
	"figcaption{font-size:.84rem;color:var(--soft);margin-bottom:.25rem}\n"
	"figcaption span{color:var(--ink);font-weight:600;margin-right:.4em}\n"
	"figcaption b{color:var(--ink);font-weight:600}\n"
	".axes{display:grid;grid-template-columns:3.6rem minmax(0,1fr);column-gap:.4rem}\n"
	".axes svg{display:block;width:100%;overflow:visible}\n"
	".y,.p{height:8.2rem}\n"
	".x{grid-column:2;height:1.1rem}\n"
	".y text,.x text{font-size:11px;fill:var(--soft);font-variant-numeric:tabular-nums}\n"
	".y text{text-anchor:end}\n"
	".p{border-bottom:1px solid var(--same)}\n"
	".grid{stroke:var(--grid)}\n"
	".fresh,.changed,.took{fill:var(--data)}\n"
	".same{fill:var(--same)}\n"
	".over{fill:var(--over)}\n"
	".hollow{fill:var(--tint);stroke:var(--failing);stroke-width:1.25}\n"
	".p rect:hover{opacity:.65}\n"
	"line.goal{stroke:var(--ink);stroke-width:1.25;stroke-dasharray:5 4}\n"
	"text.goal{font-size:11px;fill:var(--ink);paint-order:stroke;stroke:var(--card);stroke-width:4px;stroke-linejoin:round}\n"
	"text.none{font-size:12px;fill:var(--soft);text-anchor:middle}\n"
	"text.cut{font-size:10px;fill:var(--ink);text-anchor:middle;paint-order:stroke;stroke:var(--card);stroke-width:3px}\n"
	".gap{fill:var(--card)}\n"
	"text.failed{font-size:15px;font-weight:700;fill:var(--failing);text-anchor:middle;paint-order:stroke;stroke:var(--card);stroke-width:3px}\n"
	".key{display:inline-block;width:.7em;height:.7em;border-radius:2px;margin:0 .3em 0 .5em;font-style:normal}\n"
	".key.changed{background:var(--data)}.key.same{background:var(--same)}.key.over{background:var(--over)}\n"
	".key.hollow{border:1.5px solid var(--failing)}.key.cross{width:auto;height:auto;color:var(--failing);font-weight:700}\n"
	"details{margin-top:.8rem}\n"
	"summary{cursor:pointer;font-size:.9rem;color:var(--link);padding:.2rem 0}\n"
	".events{list-style:none;margin:0;padding:0;font-size:.88rem}\n"
	".events li{padding:.3rem 0;border-top:1px solid var(--grid);overflow-wrap:anywhere}\n"
	".events li:first-child{border-top:0}\n"
	".severity{display:inline-block;min-width:3.4rem;font-weight:650}\n"
	".severity.page{color:var(--failing)}\n"
	".events time{color:var(--soft);font-variant-numeric:tabular-nums}\n"
	"footer{padding-top:1.2rem;padding-bottom:2rem;color:var(--soft);font-size:.82rem}\n"
	".symbols{position:absolute;width:0;height:0}\n"
	".cutout{fill:none;stroke:var(--card);stroke-width:1.8;stroke-linecap:round;stroke-linejoin:round}\n"
	".ring{fill:none;stroke:currentColor;stroke-width:1.8;stroke-dasharray:3.2 2.4}\n"
	"@media (max-width:40rem){body{font-size:16px}h1{font-size:1.4rem}.tiles{grid-template-columns:repeat(3,minmax(0,1fr))}\n"
	".tiles li{padding:.4rem .55rem .45rem}.jobs th:first-child{max-width:42vw;min-width:7rem}.facts{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:.45rem 1rem}\n"
	".job{padding:.8rem .75rem}.axes{grid-template-columns:3rem minmax(0,1fr)}.wide,.jobs .wide{min-width:22rem}.filter input{max-width:100%;margin-left:0}summary{padding:.5rem 0}}\n"
	"@media print{.scroll{max-height:none;overflow:visible}.filter{display:none}.job,figure{break-inside:avoid}}\n";

/* without it, all is shown that there is; with it, the table can be searched */
static const char script[] =
	"(function(){\n"
	"var filter=document.querySelector('.filter');\n"
	"if(!filter)return;\n"
	"var input=filter.querySelector('input'),output=filter.querySelector('output');\n"
	"var rows=Array.from(document.querySelectorAll('.jobs tbody tr'));\n"
	"var texts=rows.map(function(row){return row.textContent.toLowerCase();});\n"
	"input.addEventListener('input',function(){\n"
	"var wanted=input.value.trim().toLowerCase(),n=0;\n"
	"rows.forEach(function(row,i){row.hidden=texts[i].indexOf(wanted)<0;n+=!row.hidden;});\n"
	"output.textContent=wanted?n+' of '+rows.length+' jobs':'';\n"
	"});\n"
	"filter.hidden=false;\n"
	"})();\n";

/* a cross, a clock, two bars, a dashed ring, an arrow, a tick */
static const char icons[] =
	"<svg class=\"symbols\" aria-hidden=\"true\">"
	"<symbol id=\"i-failing\" viewBox=\"0 0 16 16\"><path fill=\"currentColor\" d=\"M5 .5h6L15.5 5v6L11 15.5H5L.5 11V5z\"/>"
	"<path class=\"cutout\" d=\"M5 5l6 6M11 5l-6 6\"/></symbol>"
	"<symbol id=\"i-late\" viewBox=\"0 0 16 16\"><path fill=\"currentColor\" d=\"M8 .8L15.8 15H.2z\"/>"
	"<path class=\"cutout\" d=\"M8 5.5v4.6M8 11.6v1.6\"/></symbol>"
	"<symbol id=\"i-paused\" viewBox=\"0 0 16 16\"><path fill=\"currentColor\" d=\"M3 2h3.5v12H3zM9.5 2H13v12H9.5z\"/></symbol>"
	"<symbol id=\"i-never\" viewBox=\"0 0 16 16\"><circle class=\"ring\" cx=\"8\" cy=\"8\" r=\"6.2\"/></symbol>"
	"<symbol id=\"i-running\" viewBox=\"0 0 16 16\"><path fill=\"currentColor\" d=\"M3.5 1.5l10.5 6.5-10.5 6.5z\"/></symbol>"
	"<symbol id=\"i-ok\" viewBox=\"0 0 16 16\"><circle fill=\"currentColor\" cx=\"8\" cy=\"8\" r=\"7.5\"/>"
	"<path class=\"cutout\" d=\"M4.5 8.3l2.5 2.5 4.6-5\"/></symbol></svg>\n";

/* how a policy names a style or a script: by the hash of its text */
static char *
source_hash(const char *text)
{
	unsigned char digest[PG_SHA256_DIGEST_LENGTH];
	int			space = pg_b64_enc_len(sizeof(digest)) + 1;
	char	   *encoded = palloc0(space);
	pg_cryptohash_ctx *context = pg_cryptohash_create(PG_SHA256);

	if (context == NULL || pg_cryptohash_init(context) < 0 ||
		pg_cryptohash_update(context, (const uint8 *) text, strlen(text)) < 0 ||
		pg_cryptohash_final(context, digest, sizeof(digest)) < 0 ||
		pg_b64_encode((const void *) digest, sizeof(digest), encoded, space - 1) < 0)
		elog(ERROR, "could not compute the hash of a part of the page");
	pg_cryptohash_free(context);
	return encoded;
}

void
report_open_page(StringInfo out, const char *title)
{
	appendStringInfo(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
					 "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-%s'; "
					 "script-src 'sha256-%s'; img-src data:; base-uri 'none'; form-action 'none'\">\n"
					 "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
					 "<meta name=\"referrer\" content=\"no-referrer\">\n"
					 "<meta name=\"color-scheme\" content=\"light dark\">\n"
					 "<link rel=\"icon\" href=\"data:,\">\n<title>%s &#xB7; incload</title>\n",
					 source_hash(style), source_hash(script), title);
	appendStringInfo(out, "<style>%s</style>\n</head>\n<body>\n%s", style, icons);
}

void
report_close_page(StringInfo out)
{
	appendStringInfo(out, "<footer><p>Freshness: how long ago the last run began that has succeeded; the target is no older. "
					 "Lag: how old the newest row was then. A bar of freshness goes from its smallest to its largest value in that time; what is above the objective is filled from its line on. "
					 "More is in <code>incload.status</code>, <code>incload.run</code> and <code>incload.event</code>.</p></footer>\n"
					 "<script>%s</script>\n</body>\n</html>\n", script);
}
