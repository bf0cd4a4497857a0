//! The page's style: light and dark by the reader's preference, one column on a phone.

/// Colours differ in lightness as well as in hue.
pub(super) const STYLE: &str = "
:root{color-scheme:light dark;--back:#fbfaf7;--card:#fff;--ink:#1f2421;--soft:#5c655f;--rule:#dcdfda;
--c0:#1b7f5c;--c1:#c2571a;--c2:#3b5fc0;--c3:#b03a75;--c4:#8a7a12;--c5:#6b4fb3;--c6:#1f8aa8;--c7:#9c3b32;--c8:#5f7d2e;--c9:#6b7280}
@media(prefers-color-scheme:dark){:root{--back:#141715;--card:#1c201e;--ink:#e6e9e6;--soft:#9aa59f;--rule:#343b37;
--c0:#4cc38a;--c1:#f0883e;--c2:#82a6ff;--c3:#f17eb8;--c4:#d8c04a;--c5:#b39af5;--c6:#56c7e6;--c7:#f08a7e;--c8:#a3cc62;--c9:#a5acb8}}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:24px 16px 48px}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 4px}
h2{font-size:1.2rem;margin:0}
h3{font-size:.85rem;font-weight:600;margin:0 0 6px;color:var(--soft)}
p{margin:4px 0}
.soft{color:var(--soft);font-size:.88rem}
section{background:var(--card);border:1px solid var(--rule);border-radius:10px;padding:16px;margin-top:20px}
.grid{display:grid;gap:20px 28px;grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr));margin-top:14px}
.curves{grid-template-columns:repeat(auto-fit,minmax(min(100%,420px),1fr))}.curves>div{max-width:640px}
.key{display:flex;flex-wrap:wrap;gap:4px 16px;margin:8px 0 0;padding:0;list-style:none;font-size:.88rem}
.key i{display:inline-block;width:12px;height:12px;border-radius:3px;margin-right:6px;vertical-align:-1px}
svg{display:block;width:100%;height:auto;overflow:visible;font:12px system-ui,sans-serif}
svg .name{fill:var(--ink)}svg .number{fill:var(--ink);font-variant-numeric:tabular-nums}
svg .tick{fill:var(--soft);font-size:11px}svg .grid{stroke:var(--rule);stroke-width:1}
polyline{fill:none;stroke-width:1.6;stroke-linejoin:round;stroke-linecap:round}
.wide{overflow-x:auto;margin:8px -16px;padding:0 16px}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;white-space:nowrap;width:100%}
th,td{padding:3px 10px;text-align:right}
a{color:inherit;text-decoration-color:var(--rule);text-underline-offset:3px}a:hover{text-decoration-color:currentColor}
tr:nth-child(n+3) td{border-top:1px solid var(--rule)}
.matrix th:not(:first-child){white-space:normal;vertical-align:bottom;line-height:1.25}
.matrix td{vertical-align:top}
td i{font-style:normal;font-weight:400;display:block;color:var(--soft);font-size:.76rem;line-height:1.2}
.best{font-weight:700}
th{font-weight:600;color:var(--soft)}
th:first-child,td:first-child{text-align:left;position:sticky;left:0;background:var(--card)}
th:first-child,td:first-child{padding-left:0}
details{margin-top:8px;font-size:.88rem;color:var(--soft)}
summary{cursor:pointer}details table{color:var(--ink)}
code{font:13px ui-monospace,monospace;overflow-wrap:anywhere}
dl{display:grid;grid-template-columns:max-content 1fr;gap:4px 14px;font-size:.88rem;margin:8px 0 0}
dt{color:var(--soft)}dd{margin:0}
@media(max-width:560px){td:first-child{white-space:normal;max-width:7.5rem}th,td{padding:3px 7px}dl{grid-template-columns:1fr;gap:0}dd{margin-bottom:8px}main{padding:16px 10px 32px}}
";
