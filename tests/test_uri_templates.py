"""URI templates: RFC 6570's examples both ways, the rules of matching, hostile URIs."""

from __future__ import annotations

import string
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trio_mcp.handlers.resources.uri_templates import MAX_TEMPLATE, MAX_VARIABLES, UriTemplate

# RFC 6570 -----------------------------------------------------------------------------------------

VALUES: dict[str, Any] = {
    "count": ["one", "two", "three"],
    "dom": ["example", "com"],
    "dub": "me/too",
    "hello": "Hello World!",
    "half": "50%",
    "var": "value",
    "who": "fred",
    "base": "http://example.com/home/",
    "path": "/foo/bar",
    "list": ["red", "green", "blue"],
    "v": "6",
    "x": "1024",
    "y": "768",
    "empty": "",
    "empty_list": [],
    "undef": None,
}

#: Template, its expansion, and what differs from VALUES when it is matched back; ``None``: it does
#: not match, because nothing in the URI shows that there was a value.
EXAMPLES: list[tuple[str, str, dict[str, Any] | None]] = [
    # 3.2.1
    ("{count}", "one,two,three", {"count": "one,two,three"}),
    ("{count*}", "one,two,three", {}),
    ("{/count}", "/one,two,three", {"count": "one,two,three"}),
    ("{/count*}", "/one/two/three", {}),
    ("{;count}", ";count=one,two,three", {"count": "one,two,three"}),
    ("{;count*}", ";count=one;count=two;count=three", {}),
    ("{?count}", "?count=one,two,three", {"count": "one,two,three"}),
    ("{?count*}", "?count=one&count=two&count=three", {}),
    # 3.2.2
    ("{var}", "value", {}),
    ("{hello}", "Hello%20World%21", {}),
    ("{half}", "50%25", {}),
    ("O{empty}X", "OX", None),
    ("O{undef}X", "OX", None),
    ("{x,y}", "1024,768", {}),
    ("{x,hello,y}", "1024,Hello%20World%21,768", {}),
    ("?{x,empty}", "?1024,", None),
    ("?{x,undef}", "?1024", None),
    ("{var:3}", "val", {"var": "val"}),
    ("{var:30}", "value", {}),
    ("{list}", "red,green,blue", {"list": "red,green,blue"}),
    ("{list*}", "red,green,blue", {}),
    # 3.2.3
    ("{+var}", "value", {}),
    ("{+hello}", "Hello%20World!", {}),
    ("{+half}", "50%25", {}),
    ("{base}index", "http%3A%2F%2Fexample.com%2Fhome%2Findex", {}),
    ("{+base}index", "http://example.com/home/index", {}),
    ("O{+empty}X", "OX", None),
    ("{+path}/here", "/foo/bar/here", {}),
    ("here?ref={+path}", "here?ref=/foo/bar", {}),
    ("up{+path}", "up/foo/bar", {}),
    ("{+path:6}/here", "/foo/b/here", {"path": "/foo/b"}),
    ("{+list}", "red,green,blue", {"list": "red,green,blue"}),
    # 3.2.4
    ("{#var}", "#value", {}),
    ("{#hello}", "#Hello%20World!", {}),
    ("{#half}", "#50%25", {}),
    ("foo{#empty}", "foo#", {}),
    ("foo{#undef}", "foo", {}),
    ("{#path:6}", "#/foo/b", {"path": "/foo/b"}),
    # 3.2.5
    ("{.who}", ".fred", {}),
    ("{.half}", ".50%25", {}),
    ("www{.dom*}", "www.example.com", {}),
    ("X{.var}", "X.value", {}),
    ("X{.empty}", "X.", {}),
    ("X{.undef}", "X", {}),
    ("X{.var:3}", "X.val", {"var": "val"}),
    ("X{.list}", "X.red,green,blue", {"list": "red,green,blue"}),
    ("X{.list*}", "X.red.green.blue", {}),
    ("X{.empty_list}", "X", {"empty_list": ...}),
    # 3.2.6
    ("{/who}", "/fred", {}),
    ("{/half,who}", "/50%25/fred", {}),
    ("{/who,dub}", "/fred/me%2Ftoo", {}),
    ("{/var,empty}", "/value/", {}),
    ("{/var,undef}", "/value", {}),
    ("{/list}", "/red,green,blue", {"list": "red,green,blue"}),
    ("{/list*}", "/red/green/blue", {}),
    # 3.2.7
    ("{;who}", ";who=fred", {}),
    ("{;half}", ";half=50%25", {}),
    ("{;empty}", ";empty", {}),
    ("{;v,empty,who}", ";v=6;empty;who=fred", {}),
    ("{;v,undef,who}", ";v=6;who=fred", {}),
    ("{;x,y}", ";x=1024;y=768", {}),
    ("{;hello:5}", ";hello=Hello", {"hello": "Hello"}),
    ("{;list*}", ";list=red;list=green;list=blue", {}),
    # 3.2.8
    ("{?who}", "?who=fred", {}),
    ("{?half}", "?half=50%25", {}),
    ("{?x,y}", "?x=1024&y=768", {}),
    ("{?x,y,empty}", "?x=1024&y=768&empty=", {}),
    ("{?x,y,undef}", "?x=1024&y=768", {}),
    ("{?var:3}", "?var=val", {"var": "val"}),
    ("{?list}", "?list=red,green,blue", {"list": "red,green,blue"}),
    ("{?list*}", "?list=red&list=green&list=blue", {}),
    # 3.2.9
    ("?fixed=yes{&x}", "?fixed=yes&x=1024", {}),
    ("?fixed=yes{&x,y,empty}", "?fixed=yes&x=1024&y=768&empty=", {}),
    ("?fixed=yes{&var:3}", "?fixed=yes&var=val", {"var": "val"}),
    ("?fixed=yes{&list*}", "?fixed=yes&list=red&list=green&list=blue", {}),
]


@pytest.mark.parametrize(("text", "uri", "changed"), EXAMPLES)
def test_examples_of_the_rfc(text: str, uri: str, changed: dict[str, Any] | None) -> None:
    template = UriTemplate(text)
    assert template.expand(VALUES) == uri
    expected = None
    if changed is not None:
        mine = {name: VALUES[name] for name in template.variables}
        merged = {**mine, **changed}
        expected = {name: v for name, v in merged.items() if v is not None and v is not ...}
    assert template.match(uri) == expected


REFUSED = [
    ("{", "'{'"),
    ("a}", "'}'"),
    ("{}", "no variable"),
    ("{a b}", "no variable"),
    ("{a,}", "no variable"),
    ("{a:0}", "no variable"),
    ("{a:10000}", "no variable"),
    ("{a:3*}", "no variable"),
    ("{a=b}", "no variable"),
    ("{=a}", "reserved"),
    ("{|a}", "reserved"),
    ("a b", "' '"),
    ("a\x00b", r"'\x00'"),
    ("a\ud800", r"'\ud800'"),
    ("%zz", "hexadecimal"),
    ("100%", "hexadecimal"),
    ("{a,a}", "'a' occurs twice"),
    ("{a}/{b}{?a}", "'a' occurs twice"),
    ("{%7E}{?%7e}", "occurs twice"),
    ("{a}{b}", "ends and {b} begins"),
    ("{a}{+b}", "ends and {+b} begins"),
    ("{/a}{b}", "ends and {b} begins"),
    ("{/a}{.b}{/c}", "ends and {/c} begins"),
    ("{/var,x}/here", "where {/var,x} ends"),
    ("{/a}x", "where {/a} ends"),
    ("{.a}{/b}.x", "where {.a} ends"),
    ("{+a}/{b}", "make it the last or write {a}"),
    ("{+a}{/b}", "make it the last"),
    ("{+a,b}", "comma"),
    ("{#a,b}", "comma"),
    ("{+a*}", "comma"),
    ("{a*,b}", "only the last"),
    ("{/a*,b}", "only the last"),
    ("{?a}{?b}", "begins once"),
    ("x?a=1{?b}", "begun before"),
    ("x{&b}", "no query has begun"),
    ("{?a}x", "can follow {?a}"),
    ("{?a}{b}", "can follow {?a}"),
    ("{#a}x", "is the end"),
    ("{#a}{#b}", "is the end"),
    ("x#y{?a}", "follow a #"),
    ("x#y{#a}", "follow a #"),
    ("x" * (MAX_TEMPLATE + 1), str(MAX_TEMPLATE)),
    (",".join(f"{{v{n}}}" for n in range(MAX_VARIABLES + 1)), str(MAX_VARIABLES)),
]


@pytest.mark.parametrize(("text", "why"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_matched_back_is_refused_with_a_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011 - the message is looked at
        UriTemplate(text)
    assert why in str(refused.value)


# The rules ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "uri", "expected"),
    [
        # One segment, and never more
        ("stock://{title}", "stock://Dune", {"title": "Dune"}),
        ("stock://{title}", "stock://a/b", None),
        ("stock://{title}", "stock://a%2Fb", {"title": "a/b"}),
        ("stock://{title}", "stock://..%2f..%2Fetc", {"title": "../../etc"}),
        ("stock://{title}", "stock://%252e", {"title": "%2e"}),  # decoded once
        ("stock://{title}", "stock://", None),
        ("stock://{title}", "stock://a?b", None),
        ("stock://{title}", "stock://a#b", None),
        ("stock://{title}", "stock://Dune/", None),
        ("stock://{title}", "xstock://Dune", None),
        ("stock://{title}", "STOCK://Dune", None),
        # What clients leave as it is
        ("stock://{title}", "stock://Don't!(*)", {"title": "Don't!(*)"}),
        ("stock://{title}", "stock://a,b;c=d&e+f@g:h", {"title": "a,b;c=d&e+f@g:h"}),
        ("stock://{title}", "stock://Dürre m", {"title": "Dürre m"}),
        ("stock://Dürre/{x}", "stock://D%c3%BCrre/1", {"x": "1"}),
        ("stock://%7ea/{x}", "stock://~a/1", {"x": "1"}),
        ("stock://~a/{x}", "stock://%7Ea/1", {"x": "1"}),
        ("stock://a%2Fb/{x}", "stock://a/b/1", None),
        # No Unicode, no URI
        ("stock://{title}", "stock://%FF", None),
        ("stock://{title}", "stock://%C3", None),
        ("stock://{title}", "stock://%ED%A0%80", None),
        ("stock://{title}", "stock://\ud800", None),
        ("stock://{title}", "stock://50%", None),
        ("stock://{title}", "stock://%1", None),
        ("stock://{title}", "stock://%GG", None),
        # Where a value ends
        ("f:{name}.txt", "f:a.txt.txt", {"name": "a.txt"}),
        ("f:{name}.txt", "f:.txt", None),
        ("f:{name}.txt/x", "f:a.txt.txt/x", {"name": "a.txt"}),
        ("f:{y}-{m}-{d}", "f:2026-01-31", {"y": "2026", "m": "01", "d": "31"}),
        ("f:{y}-{rest}", "f:2026-01-31", {"y": "2026", "rest": "01-31"}),
        ("f:{a}--{b}", "f:x---y", {"a": "x", "b": "-y"}),
        ("f:{a}-x{/b}", "f:p-x-x/b", {"a": "p-x", "b": "b"}),
        ("f:{a}{.b}", "f:p.q", {"a": "p", "b": "q"}),
        ("f:{a}{.b}", "f:p.q.r", None),
        ("f:{a}/x{.b}", "f:p.q/x.r", {"a": "p.q", "b": "r"}),
        ("f:{a}/{+rest}", "f:p//q/", {"a": "p", "rest": "/q/"}),
        # Fixed text never begins within a triplet
        ("f:{a}20{b}", "f:x%20y20z", {"a": "x y", "b": "z"}),
        ("f:{a}20{b}", "f:x%20y", None),
        ("f:{a}20", "f:x%20", None),
        ("f:{a}0", "f:x%20", None),
        ("f:{a}0", "f:x%200", {"a": "x "}),
        # Fragments and queries
        ("f:{+p}", "f:a?b#c", {"p": "a?b#c"}),
        ("f:{+p}{?q}", "f:a?q=1", {"p": "a", "q": "1"}),
        ("f:{+p}{?q}", "f:a", {"p": "a"}),
        ("f:{+p}{?q}", "f:a#b", {"p": "a#b"}),
        ("f:{+p}{#s}", "f:a/b#c#d", {"p": "a/b", "s": "c#d"}),
        ("f:{?a,b}", "f:?b=2&a=1", {"a": "1", "b": "2"}),
        ("f:{?a,b}", "f:", {}),
        ("f:{?a,b}", "f:?", None),
        ("f:{?a,b}", "f:?a=1&", None),
        ("f:{?a,b}", "f:?a", None),
        ("f:{?a,b}", "f:?a=1&a=1", None),
        ("f:{?a,b}", "f:?c=1", None),
        ("f:{?a,b}", "f:?a=1&b=2#c", None),
        ("f:{?a,b}", "f:&a=1", None),
        ("f:{?a}", "f:?a=b=c/d?e+f", {"a": "b=c/d?e+f"}),
        ("f:{?a}", "f:?a=%26", {"a": "&"}),
        ("f:{?a*}", "f:?a=1", {"a": ["1"]}),
        ("f:?q={a}{&b}", "f:?q=1&b=2", {"a": "1", "b": "2"}),
        ("f:?q={a}{&b}", "f:?q=1&c=2", None),
        ("f:{?a}{&b}{#c}", "f:?b=1#x", {"b": "1", "c": "x"}),
        ("f:{;a,b}", "f:;b=2;a", {"a": "", "b": "2"}),
        ("f:{;a}", "f:;a;a", None),
        ("f:{/a*}", "f:/", {"a": [""]}),
        ("f:{/a,b*}", "f:/1/2/3", {"a": "1", "b": ["2", "3"]}),
        ("f:{/a}", "f:/1/2", None),
        ("f:{a,b*}", "f:1,2,3", {"a": "1", "b": ["2", "3"]}),
        ("f:{a,b}", "f:1,2,3", None),
        ("f:{a:3}", "f:%C3%A9%C3%A9%C3%A9", {"a": "ééé"}),
        ("f:{a:3}", "f:abcd", None),
    ],
)
def test_rules(text: str, uri: str, expected: dict[str, Any] | None) -> None:
    assert UriTemplate(text).match(uri) == expected


def test_variables_text_and_equality() -> None:
    template = UriTemplate("f:{b}/{a.x}{;c,d*}{?e:3}{#z}")
    assert template.variables == ("b", "a.x", "c", "d", "e", "z")
    assert template.text == "f:{b}/{a.x}{;c,d*}{?e:3}{#z}"
    assert template == UriTemplate(template.text)
    assert template != UriTemplate("f:{b}")
    assert len({template, UriTemplate(template.text)}) == 1


def test_expansion_is_a_uri_also_where_the_expander_leaves_things_alone() -> None:
    assert UriTemplate("f:{+a}").expand({"a": "%20 é%"}) == "f:%20%20%C3%A9%25"
    assert UriTemplate("f:{+a:2}").expand({"a": "é b"}) == "f:%C3%A9%20"
    assert UriTemplate("f:é/{n:2}{?m}").expand({"n": 1234, "m": 0, "other": "x"}) == (
        "f:%C3%A9/12?m=0"
    )
    with pytest.raises(TypeError, match="text or a number"):
        UriTemplate("{a}").expand({"a": {"b": "c"}})  # type: ignore[dict-item]


# Properties ---------------------------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SOME = TEXT.filter(bool)
PLAIN = st.text(string.ascii_letters + " %/é?#&=,", min_size=1, max_size=8)
#: ``{+a}`` passes triplets through, so a value that has one does not come back as it was.
NO_TRIPLET = SOME.filter(lambda value: "%" not in value)
LIST = st.lists(TEXT, min_size=1, max_size=4)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


ROUND_TRIPS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "s://{a}": {"a": SOME},
    "s://{a}/{b}.json": {"a": SOME, "b": SOME},
    "s://{a,b}/{c*}": {"a": SOME, "b": SOME, "c": LIST.filter(lambda value: value != [""])},
    "s://{+a}": {"a": NO_TRIPLET},
    "s://{x}/{+a}.json{?q}": {
        "x": SOME,
        "a": NO_TRIPLET.filter(lambda value: "?" not in value),
        "q": maybe(TEXT),
    },
    "s://{a}{/b,c*}": {"a": SOME, "b": TEXT, "c": maybe(LIST)},
    "s://{a}{.b}{/c}{;d,e*}{?f,g*}{&h}{#i}": {
        "a": PLAIN,
        "b": maybe(PLAIN),
        "c": maybe(TEXT.filter(lambda value: "." not in value)),
        "d": maybe(TEXT),
        "e": maybe(LIST),
        "f": TEXT,
        "g": maybe(LIST),
        "h": maybe(TEXT),
        "i": maybe(TEXT.filter(lambda value: "%" not in value)),
    },
    "s:{a}-{b}_{c}": {"a": PLAIN, "b": PLAIN, "c": SOME},
    "s:?q={a}{&b}": {"a": SOME, "b": maybe(TEXT)},
    "s:{a}20": {"a": SOME},
}


@pytest.mark.parametrize("text", ROUND_TRIPS)
@given(data=st.data())
def test_what_was_expanded_is_matched_back(text: str, data: st.DataObject) -> None:
    template = UriTemplate(text)
    values = data.draw(st.fixed_dictionaries(ROUND_TRIPS[text]))
    present = {name: value for name, value in values.items() if value is not None}
    assert template.match(template.expand(values)) == present


@given(value=st.text(max_size=6), length=st.integers(1, 4))
def test_a_prefix_is_what_comes_back_of_it(value: str, length: int) -> None:
    template = UriTemplate(f"s:{{?a:{length}}}")
    try:
        uri = template.expand({"a": value})
    except UnicodeEncodeError:
        return
    assert template.match(uri) == {"a": value[:length]}


@given(uri=st.text() | st.text("s:/{}%20aF?&=#;.,-_"), text=st.sampled_from([*ROUND_TRIPS]))
def test_match_never_raises_and_finds_only_what_expands_to_the_same(uri: str, text: str) -> None:
    template = UriTemplate(text)
    values = template.match(uri)
    assert template.match("s:" + uri) is None or uri is not None
    if values is not None:
        assert template.match(template.expand(values)) == values


@given(text=st.text() | st.text("{}+#./;?&a,b*:3%20-"))
def test_any_text_is_a_template_or_a_value_error(text: str) -> None:
    try:
        template = UriTemplate(text)
    except ValueError:
        return
    template.match(text)
    template.match(template.expand(dict.fromkeys(template.variables, "x")))


# Hostile URIs -------------------------------------------------------------------------------------

HOSTILE = {
    "s:{a}-{b}-{c}-{d}-{e}x": "-",
    "s:{a}.{b}.json": ".json",
    "s:{a}20{b}20{c}": "%20",
    "s:{a}aaaaaaab{b}": "a",
    "s:{+a}/x": "/x/",
    "s:{/a*}{.b*}": "/a.b",
    "s:{;a*}{?b*}": ";a",
    "s:{?a*}": "a=&",
    "s:{a*}": ",",
    "s:{a}": "%C3",
    "s:{a}{#b}": "é",
}


def events_of_matching(template: UriTemplate, uri: str) -> int:
    """Lines of Python and calls into C. Each call reads a text once, by its construction: one set
    of characters repeated, a search for a text, a split."""
    events = 0

    def count(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal events
        events += 1
        return count

    def count_calls(frame: FrameType, event: str, arg: object) -> None:
        nonlocal events
        events += event == "c_call"

    tracing, profiling = sys.gettrace(), sys.getprofile()
    sys.settrace(count)
    sys.setprofile(count_calls)
    try:
        template.match(uri)
    finally:
        sys.setprofile(profiling)
        sys.settrace(tracing)
    return events


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("head", ["s:", "s:/", "s:;a", "s:?"])
@pytest.mark.parametrize("tail", ["", "\x00", "?", "/", "%"])
def test_matching_takes_steps_in_proportion_to_the_length(text: str, head: str, tail: str) -> None:
    template = UriTemplate(text)
    steps = [
        events_of_matching(template, head + HOSTILE[text] * length + tail)
        for length in (500, 1000, 2000)
    ]
    assert steps[1] <= 2 * steps[0] + 50
    assert steps[2] <= 2 * steps[1] + 50


@pytest.mark.parametrize("text", HOSTILE)
def test_no_pattern_of_a_template_can_backtrack(text: str) -> None:
    """One set, repeated possessively: what it took it never gives back."""
    for place in UriTemplate(text)._places:
        pattern = place.run.pattern
        assert pattern.startswith("[")
        assert pattern.endswith("]*+")
        assert place.run.groups == 0
