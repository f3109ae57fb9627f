"""The page in a real browser: what a user sees, clicks and hears."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import toy_task
from page_reading import PageData, numbers_of

from treemem.attribution import explain, explain_model
from treemem.explore import explore
from treemem.explore.decimals import shown
from treemem.model import Model
from treemem.networks import NetworkConfig
from treemem.tasks.equation_verification.task import EquationVerification
from treemem.tasks.listops.task import ListOps
from treemem.trees.tree import Tree
from treemem.trees.vocabulary import Vocabulary

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium to open pages with")

EQUATIONS = ["sin(x) + y = y", "x + y = y + x", "1 = cos(x)^2"]
UNNAMED = """[...document.querySelectorAll('button, input, select, [role]')]
  .filter((part) => part.checkVisibility() && part.getAttribute('role') !== 'tablist')
  .filter((part) => !(part.ariaLabel || part.textContent.trim() || part.labels?.length))
  .map((part) => part.outerHTML)"""
REPLAY = "#play:visible, #step:visible, #step-text:visible"
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # A browser that runs as root, as in a container, has no sandbox to run in.
        arguments = ["--disable-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


class Visit:
    """A page that was opened, with everything it complained of or asked for."""

    def __init__(self, browser: Any, path: Path, *, width: int = 1280, scheme: str = "light") -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.tab = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        self.tab.on("console", lambda message: self.complaints.append(message.text))
        self.tab.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.tab.on("dialog", lambda dialog: self.complaints.append(dialog.message))
        self.tab.on("request", lambda request: self.requests.append(request.url))
        self.tab.goto(path.as_uri())

    def text(self, selector: str) -> str:
        return str(self.tab.locator(selector).first.text_content())

    def texts(self, selector: str) -> list[str]:
        return list(self.tab.locator(selector).all_text_contents())

    def chosen(self) -> str | None:
        """The example that is chosen."""
        return self.tab.locator('#list [aria-selected="true"] .text').text_content()

    def focused(self) -> str:
        """The id of what has the focus, or else its text."""
        return str(self.tab.evaluate("document.activeElement.id || document.activeElement.textContent"))

    def leave(self, path: Path) -> None:
        """Close, having made sure that nothing went wrong and nothing but the file itself was asked for."""
        self.tab.close()
        assert self.complaints == []
        assert self.requests == [path.as_uri()]


def test_a_page_of_trees_is_read_with_mouse_and_keyboard(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    options = {"hidden_size": 4, "stack_size": 3, "normalize": True, "no_op": True}
    model = Model(EquationVerification(), NetworkConfig("StackTreeLSTM", options))
    with torch.no_grad():
        model.head.bias.fill_(-5)
    path = explore(model, EQUATIONS, tmp_path / "page.html", labels=[1, 0, -1], title="Three equations")
    page = PageData(path)
    visit = Visit(browser, path)
    tab = visit.tab

    assert visit.text("h1") == "Three equations"
    assert visit.chosen() == EQUATIONS[0]
    assert visit.texts("#tree .node text") == ["Add", "y", "sin", "x", "y", "="]
    certain = page.data["examples"][0]["probability"]
    assert float(certain) > 0.5
    assert visit.texts("#summary .facts > span")[:2] == ["answer false", f"probability of false {certain}"]

    assert visit.text("#details .node-name") == "Add"  # the root of the first tree that has a stack to show
    sines = {tree["row"][node] for tree in page.data["examples"][0]["trees"] for node in (1,) if len(tree["row"]) > 1}
    (sine,) = (page.values("push", row)[0] for row in sines)
    tab.keyboard.press("4")
    cells = tab.locator('#averages table[data-field="push"] tbody tr', has=tab.get_by_text("sin", exact=True)).locator(
        "td"
    )
    assert cells.all_text_contents() == [f"{sum(sine) / 4:.2f}", "", f"{sum(sine) / 4:.2f}"]
    tab.keyboard.press("1")

    tab.click("#node-0-1")  # sin, a child of Add
    facts = dict(zip(visit.texts("#details dt"), visit.texts("#details dd"), strict=True))
    assert (facts["label"], facts["height"], facts["size"]) == ("sin", "1", "2 nodes")
    assert facts["place"] == "child 1 of 2 of Add"
    tab.check("#with-numbers")
    row = page.data["examples"][0]["trees"][0]["row"][1]
    for name in ("h", "S", "forget", "push", "pop", "no_op", "output", "update"):
        told = [entry for entry in page.values(name, row) if entry is not None]
        expected = ["4 × 0" if not any(entry) else " ".join(map(shown, entry)) for entry in told]
        assert visit.texts(f'#details [data-field="{name}"] .numbers') == expected

    tab.hover('#details [data-field="h"] svg', position={"x": 2, "y": 5})
    assert visit.text(".readout") == f"h [0]  {shown(page.values('h', row)[0][0])}"

    tab.focus("#tree")
    tab.keyboard.press("ArrowUp")
    assert visit.text("#details .node-name") == "Add"
    tab.keyboard.press("ArrowUp")
    assert visit.text("#details .node-name") == "="
    assert len(visit.texts("#details .entry")) == 2  # the encodings of both sides
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    assert visit.text("#details .node-name") == "y"
    assert tab.get_attribute("#tree", "aria-activedescendant") == "node-1-0"

    tab.keyboard.press("2")
    similarities = [float(text) for text in visit.texts("#neighbours .cosine")]
    own = torch.tensor(page.values("h", page.data["examples"][0]["trees"][1]["row"][0])[0])
    others = {row: torch.tensor(page.values("h", row)[0]) for row in page.rows("trees")}
    del others[page.data["examples"][0]["trees"][1]["row"][0]]
    cosines = sorted((float(torch.cosine_similarity(own, other, 0)) for other in others.values()), reverse=True)
    assert similarities == pytest.approx(cosines[: len(similarities)], abs=1e-4)
    tab.focus("#neighbours .neighbour >> nth=0")
    tab.keyboard.press("Enter")
    assert visit.text("#neighbours b") != "y"
    assert visit.focused() == "tree"  # where the arrows walk on from the neighbour
    tab.focus("#neighbours .neighbour >> nth=0")
    tab.keyboard.press("n")
    assert visit.focused() == "neighbours"

    tab.click("#example-1")
    tab.keyboard.press("Home")
    assert visit.text("#step-text") == "level 0 of 2"
    later = "#tree .node.later text"
    assert visit.texts(later) == ["Add", "Add", "="]
    tab.keyboard.press(".")
    assert visit.texts(later) == ["="]
    tab.focus("#tree")
    tab.keyboard.press("End")
    tab.keyboard.press("Space")  # from the end, it plays anew
    assert tab.get_attribute("#play", "aria-label") == "Pause"
    tab.locator('#play[aria-label="Play"]').wait_for()
    assert visit.text("#step-text") == "level 2 of 2: compared"
    assert visit.texts(later) == []

    tab.focus("#list")
    tab.keyboard.press("ArrowDown")
    assert visit.chosen() == EQUATIONS[2]
    tab.keyboard.press("p")
    assert visit.chosen() == EQUATIONS[1]
    tab.keyboard.press("/")
    tab.keyboard.type("COS")
    assert visit.texts("#list .example:visible .text") == [EQUATIONS[2]]
    assert visit.text("#count").startswith("1 of 3 examples; ")
    tab.fill("#filter", "")
    tab.select_option("#verdicts", "none")
    assert visit.texts("#list .example:visible .text") == [EQUATIONS[2]]

    tab.click("#tab-plane")
    assert tab.locator("#plane .point[class]:not(.key *)").count() == 6
    tab.locator("#plane svg > circle.point", has_text=EQUATIONS[0]).dispatch_event("click")
    assert visit.chosen() == EQUATIONS[0]

    def ink() -> str:
        return str(tab.evaluate("getComputedStyle(document.body).color"))

    light = ink()
    tab.keyboard.press("t")
    assert ink() == light
    tab.keyboard.press("t")
    assert visit.text("#theme") == "Theme: dark"
    assert ink() != light
    tab.keyboard.press("?")
    assert tab.locator("#help").is_visible()
    tab.keyboard.press("Escape")
    assert not tab.locator("#help").is_visible()
    assert tab.evaluate(UNNAMED) == []
    visit.leave(path)


def test_a_page_of_tokens_shows_pointers_and_the_tree_that_was_found_on_a_phone(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(ListOps(), NetworkConfig("OrderedMemory", {"hidden_size": 6, "slots": 5}))
    path = explore(model, ["[MAX 2 9 [MIN 4 7 ] 0 ]"], tmp_path / "page.html", labels=[9])
    page = PageData(path)
    visit = Visit(browser, path, width=390, scheme="dark")
    tab = visit.tab
    assert tab.evaluate("document.documentElement.scrollWidth") == 390
    assert visit.texts("#tree .caption")[0] == "gold tree"
    assert visit.texts("#tree .caption")[1].startswith("induced tree, F1 ")
    (sequence,) = page.data["examples"][0]["sequences"]
    told = (
        tab.locator("#sequences tbody tr").nth(3).locator("td.cell").evaluate_all("cells => cells.map((c) => c.title)")
    )
    pointers = page.values("pointers", sequence["row"][3])[0]
    assert told == [f"pointers {slot + 1}: {shown(value)}" for slot, value in enumerate(pointers)]
    tab.click("#sequences tbody button >> nth=3")
    assert visit.text("#details .node-name") == "[MIN"
    assert visit.texts("#tree .node.chosen text") == ["[MIN"]
    tab.keyboard.press("ArrowDown")
    assert visit.text("#details .node-name") == "4"
    tab.keyboard.press("2")
    tab.focus("#neighbours .neighbour >> nth=0")
    tab.keyboard.press("Enter")
    assert visit.focused() == visit.text("#sequences tr.chosen button")
    tab.keyboard.press("Home")
    assert visit.text("#step-text") == "token 1 of 9"
    assert tab.locator("#sequences tr.later").count() == 8
    assert tab.locator("#tree .node.later").count() > 0
    visit.leave(path)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark")])
def test_a_page_of_a_transformer_shows_what_each_position_attends_to(
    browser: Any, tmp_path: Path, width: int, scheme: str
) -> None:
    torch.manual_seed(0)
    options = {"hidden_size": 4, "num_heads": 2, "num_layers": 2}
    model = Model(ListOps(), NetworkConfig("Transformer", options))
    path = explore(model, ["[MAX 2 9 ]", "[SM " + "1 " * 120 + "]"], tmp_path / "page.html")
    (sequence,) = PageData(path).data["examples"][0]["sequences"]
    count = sequence["attention"]["positions"]
    weights = [f"{value:#.4g}" for value in numbers_of(sequence["attention"]["numbers"])]
    visit = Visit(browser, path, width=width, scheme=scheme)
    tab = visit.tab
    assert tab.evaluate("document.documentElement.scrollWidth") == width
    assert visit.texts("#trace option")[:3] == ["attention, layer 1", "attention, layer 2", "h"]
    titles = "cells => cells.map((cell) => cell.title.split(': ')[1])"
    for layer in (0, 1):
        tab.select_option("#trace", f"attention {layer}")
        shown_weights = tab.locator("#sequences td.cell").evaluate_all(titles)
        assert shown_weights == weights[layer * count**2 : (layer + 1) * count**2]
    assert tab.locator("#sequences td.mark-name").inner_text() == "⟨extract⟩"
    tab.locator("#sequences tbody button").first.focus()
    tab.keyboard.press("ArrowDown")
    assert visit.focused() == "2"
    assert visit.texts("#details dt")[1:] == ["layer 1 attends to", "layer 2 attends to"]
    most = max(range(count), key=lambda place: float(weights[count + place]))
    assert f"({most + 1}) {weights[count + most]}" in visit.texts("#details dd")[1]
    assert tab.evaluate(UNNAMED) == []
    tab.locator("#sequences tbody button").first.focus()
    tab.keyboard.press("n")
    assert visit.text("#sequences caption") == "tokens: too long a sequence to keep its attention"
    assert visit.focused() == "[SM"
    visit.leave(path)


def test_an_example_that_the_filter_leaves_out_gives_way_to_the_first_that_is_listed(
    browser: Any, tmp_path: Path
) -> None:
    model = _certain(EquationVerification(), -5)  # says false to each
    path = explore(model, EQUATIONS, tmp_path / "page.html", labels=[0, 1, 0])
    visit = Visit(browser, path)
    visit.tab.select_option("#verdicts", "wrong")
    assert visit.chosen() == EQUATIONS[1]
    assert visit.text("#summary .text") == EQUATIONS[1]
    assert not visit.tab.locator("#none-listed").is_visible()
    visit.tab.select_option("#verdicts", "none")
    assert visit.tab.locator("#none-listed").is_visible()
    assert visit.text("#summary .text") == EQUATIONS[1]
    visit.tab.select_option("#verdicts", "all")
    assert visit.chosen() == EQUATIONS[1]
    visit.tab.fill("#filter", "cos")
    assert visit.chosen() == EQUATIONS[2]
    visit.leave(path)


def test_a_temperature_stands_beside_the_probability_that_it_makes(browser: Any, tmp_path: Path) -> None:
    model = _certain(EquationVerification(), -5)
    texts = {}
    for temperature in (1.0, 1.29):
        model.temperature = temperature
        path = explore(model, ["x = y"], tmp_path / f"{temperature}.html")
        visit = Visit(browser, path)
        visit.tab.keyboard.press("Escape")
        texts[temperature] = (visit.texts("#summary .facts > span")[1], visit.text("#details dd"))
        visit.leave(path)
    assert "temperature" not in "".join(texts[1.0])
    assert all(text.endswith(" (temperature 1.290)") for text in texts[1.29])


@pytest.mark.parametrize("depth", [5, 100])
def test_the_buttons_of_zoom_stay_beside_those_of_the_replay(browser: Any, tmp_path: Path, depth: int) -> None:
    model = _certain(EquationVerification(), 0)
    path = explore(model, ["sin(" * depth + "x" + ")" * depth + " = x"], tmp_path / "page.html")
    visit = Visit(browser, path)
    assert visit.text("#step-text") == f"level {depth + 1} of {depth + 1}: compared"
    first, fit, stage = (visit.tab.locator(part).bounding_box() for part in ("#first", "#fit", "#stage"))
    assert fit["y"] == first["y"]
    assert fit["x"] + fit["width"] <= stage["x"] + stage["width"]
    visit.leave(path)


@pytest.mark.parametrize("scheme", ["dark"])
def test_both_sides_show_in_the_plane_where_they_agree(browser: Any, tmp_path: Path, scheme: str) -> None:
    path = explore(_certain(EquationVerification(), 0), ["x = x", "y = y", "x = y"], tmp_path / "page.html")
    visit = Visit(browser, path, scheme=scheme)
    visit.tab.click("#tab-plane")
    left, right = (visit.tab.locator(f"#plane svg[role] > {mark}").first for mark in ("circle", "rect"))
    inner, outer = left.bounding_box(), right.bounding_box()
    middle = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in (inner, outer)]
    assert middle[0] == pytest.approx(middle[1], abs=0.5)
    assert inner["width"] < 0.6 * outer["width"]
    for example in (0, 1):  # whichever is chosen
        visit.tab.locator("#plane svg[role] > circle").nth(example).dispatch_event("click")
        marks = visit.tab.locator("#plane svg[role] > .point").evaluate_all("all => all.map((mark) => mark.tagName)")
        assert marks[-2:] == ["rect", "circle"]
    x, y = middle[0]
    seen = "([x, y]) => document.elementFromPoint(x, y).tagName"
    assert visit.tab.evaluate(seen, [x, y]) == "circle"
    assert visit.tab.evaluate(seen, [x + 0.4 * outer["width"], y]) == "rect"
    visit.leave(path)


def _certain(task: EquationVerification, bias: float) -> Model:
    """A network that has the same answer to everything, when ``bias`` is far from 0."""
    torch.manual_seed(0)
    model = Model(task, NetworkConfig("TreeRNN", {"hidden_size": 3}))
    with torch.no_grad():
        model.head.bias.fill_(bias)
    return model


def test_what_is_done_in_one_step_has_no_replay_and_a_small_tree_is_drawn_large(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(EquationVerification(), NetworkConfig("TreeLSTM", {"hidden_size": 3}))
    path = explore(model, ["x = y", "x + y = y"], tmp_path / "page.html")
    visit = Visit(browser, path)
    tab = visit.tab
    tab.click("#example-0")  # the page begins with the first tree that is more than a leaf
    replay = tab.locator(REPLAY)
    assert replay.count() == 0
    assert tab.locator("#fit").is_visible()
    tab.keyboard.press("Home")
    assert tab.locator("#tree .later").count() == 0
    (zoom,) = re.findall(r"scale\((.*)\)", tab.get_attribute("#tree > g", "transform"))
    assert float(zoom) == 2
    tab.keyboard.press("n")
    assert replay.count() == 3
    tab.focus("#play")
    tab.keyboard.press("p")
    assert replay.count() == 0
    assert visit.focused() == "tree"
    visit.leave(path)


def test_a_network_without_nodes_and_tokens_has_no_replay(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(toy_task.MoreX(), NetworkConfig("KindSum", {"hidden_size": 3}))
    path = explore(model, ["(f x (g y))"], tmp_path / "page.html")
    visit = Visit(browser, path)
    assert visit.tab.locator(REPLAY).count() == 0
    assert visit.texts("#tree .node text") == ["f", "g", "y", "x"]
    visit.leave(path)


def test_texts_of_users_are_shown_as_texts(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(toy_task.MoreX(), NetworkConfig("TreeRNN", {"hidden_size": 3}), Vocabulary([HOSTILE], [(HOSTILE, 1)]))
    with torch.no_grad():
        model.encoder.cell.maps.of(1).bias[:, 0] = torch.nan
    text = str(Tree(HOSTILE, [Tree(HOSTILE)]))
    path = explore(model, [text], tmp_path / "page.html", title=HOSTILE, ids=[HOSTILE])
    visit = Visit(browser, path)
    assert visit.tab.locator("img").count() == 0
    assert visit.text("h1") == visit.tab.title() == HOSTILE
    assert visit.chosen() == text
    visit.tab.click("#node-0-1")
    assert visit.text("#details .node-name") == f"{HOSTILE[:17]}…" or visit.text("#details .node-name") == HOSTILE
    visit.tab.keyboard.press("v")
    assert "NaN" in visit.texts("#details .numbers .strange")
    visit.leave(path)


def fills(visit: Visit) -> list[str]:
    """The colours of the nodes that have one."""
    shown = "nodes => nodes.map((node) => getComputedStyle(node.querySelector('rect')).fill)"
    return list(visit.tab.locator("#tree .node.coloured:not(.chosen)").evaluate_all(shown))


def test_nodes_have_the_colours_of_an_explanation(browser: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = Model(EquationVerification(), NetworkConfig("TreeLSTM", {"hidden_size": 4}))
    page = explore(model, EQUATIONS, tmp_path / "page.html", explain="occlusion")
    visit = Visit(browser, page)
    (explanation,) = explain(model, EQUATIONS[:1])
    answer = ("false", "true")[explanation.answer]
    assert visit.text("#explained") == f"occlusion: what speaks for {answer}, value {shown(explanation.value)}"
    assert visit.tab.locator("#colour-legend .legend").is_visible()
    visit.tab.keyboard.press("Escape")
    of_subtrees = fills(visit)
    assert len(of_subtrees) == explanation.forest.num_nodes
    assert len(set(of_subtrees)) > 2
    visit.tab.locator("#node-0-0").click()
    first = [shown(explanation.subtree[0]), str(explanation.ranking().index(0) + 1), shown(explanation.score[0])]
    assert visit.texts("#details dd")[3:5] == [f"{first[0]}, rank {first[1]}", first[2]]
    visit.tab.select_option("#colour-by", "score")
    assert fills(visit) != of_subtrees
    visit.tab.select_option("#colour-by", "")
    assert fills(visit) == []
    assert not visit.tab.locator("#colour-legend .legend").is_visible()
    visit.leave(page)


def test_a_page_says_why_an_example_has_no_explanation(
    browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain_model, "MOST_NODES", 4)
    model = Model(EquationVerification(), NetworkConfig("TreeLSTM", {"hidden_size": 4}))
    page = explore(model, EQUATIONS[:1], tmp_path / "page.html", explain="occlusion")
    visit = Visit(browser, page)
    assert visit.text("#explained").startswith("⚠ no explanation: it has 5 nodes")
    assert fills(visit) == []
    assert not visit.tab.locator("#colour-by").is_visible()
    visit.leave(page)


def test_a_page_without_explanations_has_no_colours(browser: Any, tmp_path: Path) -> None:
    model = Model(EquationVerification(), NetworkConfig("TreeLSTM", {"hidden_size": 4}))
    page = explore(model, EQUATIONS[:1], tmp_path / "page.html")
    visit = Visit(browser, page)
    assert not visit.tab.locator("#explanation").is_visible()
    assert fills(visit) == []
    visit.leave(page)
