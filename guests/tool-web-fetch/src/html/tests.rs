use proptest::prelude::*;
use url::Url;

use super::read;
use crate::page::Page;

fn page(html: &str) -> Page {
    read(html, &Url::parse("https://site.test/docs/page").unwrap(), 100_000)
}

fn text(html: &str) -> String {
    page(html).text
}

#[test]
fn an_article_becomes_the_expected_markdown() {
    let page = page(include_str!("../../fixtures/article.html"));
    assert_eq!(page.title.as_deref(), Some("Ten facts & a half | Site"));
    assert_eq!(page.text, include_str!("../../fixtures/article.md").trim_end());
    assert!(!page.cut);
}

#[test]
fn blocks_and_inline_elements_are_separated() {
    for (html, expected) in [
        ("one <b>two</b>, three", "one two, three"),
        ("a<br>b<br/>c", "a\nb\nc"),
        ("<p>a<p>b", "a\n\nb"),
        ("<h2>Head</h2>text", "## Head\n\ntext"),
        ("<div><div>a</div></div><div>b</div>", "a\n\nb"),
        ("<h2><div>Head</div></h2><h3></h3><p>text", "## Head\n\ntext"),
        ("<ul><li>a<li>b<ul><li>c</ul><li>d</ul>e", "- a\n- b\n  - c\n- d\n\ne"),
        ("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n\n> b\n\nc"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "| a | b\n| 1 | 2"),
        ("<dl><dt>term<dd>what it is</dl>", "term\n: what it is"),
        ("use <code>a  b</code>.", "use `a b`."),
        ("<pre>\n  a\n    b\n</pre>after", "```\n  a\n    b\n\n```\n\nafter"),
        ("<pre><code>x &lt; y</code></pre>", "```\nx < y\n```"),
        ("a<hr>b", "a\n\n---\n\nb"),
        ("<img src=x alt='a cat'>", "[image: a cat]"),
        ("&lt;p&gt; &amp;amp; &nbsp;&#8364;&#x20ac; &unknown;", "<p> &amp; €€ &unknown;"),
        ("<body style='opacity:0' hidden>waits", "waits"),
        ("<xmp><b>raw</b></xmp>", "<b>raw</b>"),
        ("a <!-- b --> c", "a c"),
        ("", ""),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn links_are_absolute_and_only_those_that_can_be_followed() {
    for (html, expected) in [
        ("<a href=other?a=1>text</a>.", "[text](https://site.test/docs/other?a=1)."),
        ("see <a href='//cdn.test/x'> it </a>!", "see [it](https://cdn.test/x) !"),
        ("<base href='https://base.test/d/'><a href=x>t</a>", "[t](https://base.test/d/x)"),
        ("<a href='x(1)'>t</a>", "[t](https://site.test/docs/x(1%29)"),
        ("<a href='#top'>t</a><a href='javascript:x()'>u</a><a>v</a>", "tuv"),
        ("<a href=x></a><a href=y><img src=z></a>t", "t"),
        ("<a href=x><h3>Head</h3><p>more</p></a>", "### [Head](https://site.test/docs/x)\n\nmore"),
        ("<a href=x>a<a href=y>b</a>", "[a](https://site.test/docs/x)[b](https://site.test/docs/y)"),
        ("<a href=x>open", "[open](https://site.test/docs/x)"),
    ] {
        assert_eq!(text(html), expected, "{html}");
    }
}

#[test]
fn scripts_and_hidden_text_never_show() {
    for html in [
        "<script>evil('</p>')</script>",
        "<style>p { content: 'evil' }</style>",
        "<svg><text>evil</text></svg>",
        "<template><p>evil</p></template>",
        "<div hidden>evil <div>evil</div> evil</div>",
        "<div style='DISPLAY : none'>evil</div>",
        "<span style='color:red; visibility: hidden !important'>evil</span>",
        "<span aria-hidden=true>evil</span>",
        "<p hidden>evil<p>",
        "<ul><li hidden>evil<ul><li>evil</ul><li></ul>",
        "<table><tr hidden><td>evil</table>",
        "<select><option>evil</select>",
        "<script><!--<script>evil</script>--></script>",
        "<textarea>evil</textarea>",
        "<div hidden><script></div></script>evil</div>",
        "<title>evil</title>",
        "<div style='display:none'><main>evil</main></div>",
        "<div hidden><nav>evil</nav><main><p>evil</p></main>evil</div>",
        "<nav hidden><main>evil</main></nav>",
        "<li hidden><main>evil</main></li>",
        "<svg><title/><text>evil</text><svg/><style/><script/></svg>",
        "<svg><title>evil</title></svg>",
    ] {
        assert_eq!(
            text(&format!("before {html} after")),
            "before after".replace(' ', separator(html)),
            "{html}"
        );
    }
}

#[test]
fn a_script_with_much_state_does_not_take_the_page_along() {
    let state: String = (0..400).map(|number| format!("\"k{number}\":\"v\",")).collect();
    let script = format!("<script>for(var i=0;i<n;i++){{x(i)}}var t={{{state}}};</script>");
    assert_eq!(text(&format!("<p>before</p>{script}<p>AFTER</p>")), "before\n\nAFTER");
}

#[test]
fn self_closing_elements_of_pictures_and_formulas_are_empty() {
    for html in [
        "<svg viewBox='0 0 1 1'><title/><path/></svg>",
        "<svg class=logo />",
        "<svg><svg/><g><style/><script href=x /></g><textarea/><iframe/></svg>",
        "<div hidden><svg><title/></svg></div>",
        "<math hidden/>",
        "<math><title/></math>",
    ] {
        let page = page(&format!("<p>before</p>{html}<p>article</p><title>page</title>"));
        assert_eq!(page.text, "before\n\narticle", "{html}");
        assert_eq!(page.title.as_deref(), Some("page"), "{html}");
    }
    // Outside of them, such a tag begins an element.
    assert_eq!(text("<p>before</p><svg></svg><textarea/><p>x</p>"), "before");
    assert_eq!(text("before<script/>x</script>"), "before");
}

/// More attributes than a tag may have.
fn many_attributes() -> String {
    (0..1_100).map(|number| format!(" a{number}='x'")).collect()
}

#[test]
fn elements_with_many_attributes_stay_hidden() {
    let many = many_attributes();
    for html in [
        format!("<div{many} hidden>evil</div>"),
        format!("<div hidden{many}>evil</div>"),
        format!("<DIV{many} STYLE='display:none'>evil</DIV>"),
        format!("<div{many} aria-hidden=true{many}>evil</div>"),
        format!("<template{many}>evil</template>"),
        format!("<script{many}>evil</script>"),
        format!("<svg{many}><text>evil</text></svg>"),
        format!("<svg><title{many}/><text>evil</text></svg{many}>"),
        format!("<div hidden>evil</p{many}>evil</div{many}>"),
    ] {
        assert_eq!(text(&format!("before {html} after")), "before\n\nafter", "{html:.60}");
    }
}

#[test]
fn elements_with_many_attributes_keep_their_meaning() {
    let many = many_attributes();
    for (html, expected) in [
        (format!("<div{many}>a</div{many}>b"), "a\n\nb"),
        (format!("<a{many} href='other?a=1>2'>t</a>"), "[t](https://site.test/docs/other?a=1%3E2)"),
        (format!("<a href=x href=y{many}>t</a>"), "[t](https://site.test/docs/x)"),
        (format!("<ol{many} start=3><li>a</ol>"), "3. a"),
        (format!("<img alt='a > b'{many}>"), "[image: a > b]"),
        (format!("<script>i<n{many}</script{many}>b"), "b"),
        (format!("<!-- i<n {many}-->b"), "b"),
        (format!("a<p{many}"), "a"),
    ] {
        assert_eq!(text(&html), expected, "{html:.60}");
    }
}

#[test]
fn a_bracket_inside_quotes_ends_no_tag() {
    let many = many_attributes();
    for (html, expected) in [
        ("<a title='a > b' href=x>t</a>".to_owned(), "[t](https://site.test/docs/x)"),
        (format!("<p title='{} > evil'>b</p>", "x ".repeat(1_100)), "b"),
        (format!("<p title=\"{} > evil\"{many}>b</p>", "'x' ".repeat(1_100)), "b"),
        (format!("<p title='>'{many}>b</p>"), "b"),
        ("<p a='</script>' b='-->' hidden>evil</p>b".to_owned(), "b"),
    ] {
        assert_eq!(text(&html), expected, "{html:.60}");
    }
}

/// The text between the neighbours of a dropped element.
fn separator(html: &str) -> &'static str {
    if html.starts_with("<title") { " " } else { "\n\n" }
}

#[test]
fn navigation_goes_unless_it_is_all_there_is() {
    let long = "word ".repeat(60);
    let html = format!("<nav><a href=x>menu</a></nav><main>{long}</main><footer>imprint</footer>");
    assert_eq!(text(&html), long.trim());
    assert_eq!(text("<nav>menu</nav><footer>imprint</footer>"), "menu\n\nimprint");
    let unclosed = format!("<nav>menu<main>{long}</main>");
    assert_eq!(text(&unclosed), long.trim());
}

#[test]
fn asides_footers_and_buttons_within_the_content_stay() {
    let long = "word ".repeat(60);
    for (html, expected) in [
        ("<aside aria-label=Danger>DANGER: high voltage.</aside>", "DANGER: high voltage."),
        ("<h2><button>How do I get a refund?</button></h2>", "## How do I get a refund?"),
        ("<blockquote>Quote<footer>Mark Twain</footer></blockquote>", "> Quote\n\n> Mark Twain"),
        ("<article>a<footer>b</footer></article><aside>c</aside>", "a\n\nb\n\nc"),
        ("</article></blockquote><aside>a</aside>", "a"),
        ("<h3><button>a</button></h4><button>menu</button>", "### a"),
        ("<aside>a<nav>menu</nav><button>menu</button><div role=search>menu</div></aside>", "a"),
        ("<nav><aside>menu</aside><h2><button>menu</button></h2></nav>a", "a"),
        ("<aside hidden>evil</aside><h2 hidden><button>evil</button></h2><button>menu</button>a", "a"),
    ] {
        let page = format!("<main><p>{long}</p>{html}</main>");
        assert_eq!(text(&page), format!("{}\n\n{expected}", long.trim()), "{html}");
    }
    // An article and a quotation are content also on a page without a main element.
    for html in ["<article>a<aside>b</aside></article>", "<blockquote>a<footer>b</footer></blockquote>"] {
        assert!(text(&format!("<p>{long}</p>{html}")).ends_with('b'), "{html}");
    }
    for html in [
        format!("<aside>menu</aside><main>{long}</main><aside>menu</aside><footer>imprint</footer>"),
        format!("<nav>menu<main>{long}</main><footer>imprint</footer>"),
        format!("<article>{long}</article></article><footer>imprint</footer>"),
        format!("<p>{long}</p><aside><article>menu</article></aside><button>menu</button>"),
    ] {
        assert_eq!(text(&html), long.trim(), "{html}");
    }
}

#[test]
fn the_title_is_the_first_one_and_short() {
    assert_eq!(page("<title> a\n b </title><title>c</title>").title.as_deref(), Some("a b"));
    assert_eq!(page("<title></title>x").title, None);
    assert_eq!(page("<svg><title>icon</title></svg><title>page</title>").title.as_deref(), Some("page"));
    assert_eq!(page(&format!("<title>{}", "x".repeat(1000))).title.unwrap().len(), 300);
}

#[test]
fn text_is_cut_where_it_was_asked_to_be() {
    let base = Url::parse("https://site.test/").unwrap();
    let page = read(&"wörd ".repeat(100_000), &base, 301);
    assert_eq!((page.text.chars().count(), page.cut), (301, true));
    assert!(!read("four", &base, 4).cut);
}

#[test]
fn hostile_markup_takes_linear_time_and_no_stack() {
    // The tests of the sandbox repeat some of these with megabytes.
    let many = 10_000;
    for html in [
        "<div>".repeat(100_000),
        "<blockquote>".repeat(many),
        "<ul><li>".repeat(many),
        "<b><i><a href=x>".repeat(many),
        "<table><tr><td>".repeat(many),
        "<pre>".repeat(many),
        "</div>".repeat(many),
        "<svg>".repeat(many),
        "<nav>".repeat(many),
        "<p hidden>".repeat(many),
        format!("<p {}>", (0..many).map(|number| format!("a{number}=1 ")).collect::<String>()),
        format!("<p title='>' {}>", (0..many).map(|number| format!("a{number}=1 ")).collect::<String>()),
        format!("<script>a<b c='</script><p {}'>", "a ".repeat(many)),
        format!("<p title='{}'>", "x".repeat(1 << 20)),
        format!("<base href='/{}'>{}", "x".repeat(1 << 20), "<a href=y>t</a>".repeat(many)),
        "&".repeat(many) + "&lt;".repeat(many).as_str(),
        format!("&{};", "a".repeat(many)),
        "<!--".repeat(many),
        "<!-- ->".repeat(many),
        "<![CDATA[".repeat(many),
        "<".repeat(many),
        "<script>".repeat(many),
        "<title>".repeat(many),
        "\0".repeat(many),
    ] {
        let page = page(&format!("{html}text"));
        assert!(page.text.chars().count() <= 100_000);
    }
}

proptest! {
    #[test]
    fn any_text_is_read(html in "\\PC{0,200}", chars_max in 0usize..50) {
        let page = read(&html, &Url::parse("https://site.test/").unwrap(), chars_max);
        prop_assert!(page.text.chars().count() <= chars_max);
    }

    #[test]
    fn any_markup_is_read(
        parts in proptest::collection::vec(
            prop::sample::select(vec![
                "<p>", "</p>", "<p hidden>", "<ul>", "</ul>", "<li>", "<li hidden>", "<pre>", "</pre>", "<a href=x>",
                "</a>", "<table>", "<tr>", "<td>", "</table>", "<nav>", "</nav>", "<div hidden>", "</div>", "<title>",
                "</title>", "<script>", "</script>", "<code>", "</code>", "<blockquote>", "</blockquote>", "<h1>",
                "<br>", "<aside>", "</aside>", "<button>", "<article>", "</article>", "<img alt=i>", "<!--", "-->", "<svg>", "<main>", "</main>", " word ", "&amp;", "<", ">", "\n",
            ]),
            0..60,
        ),
    ) {
        page(&parts.concat());
    }
}
