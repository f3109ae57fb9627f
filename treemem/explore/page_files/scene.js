// The trees of one example as the tree view draws them.

/** What the tree view draws: the gold trees, and the trees that a sequence encoder induces. */
function makeScene(page) {
  const number = page.example;
  const example = page.data.examples[number];
  const ofNodes = page.data.items === 'nodes';
  const sides = example.trees.length > 1 ? [', left', ', right'] : [''];
  const induces = example.sequences.some((sequence) => sequence.induced);
  const joint = example.joint === null || induces ? null : page.shortLabel(example.joint);
  const parts = [];
  let nodesBefore = 0;
  example.trees.forEach((gold, side) => {
    const tree = page.treeOf(number, side);
    const sequence = example.sequences[example.sequences.length === 1 ? 0 : side];
    const before = example.sequences.length === 1 ? nodesBefore : 0;
    nodesBefore += tree.count;
    parts.push({
      tree, side, line: induces ? side : 0,
      labels: gold.label.map((label) => page.shortLabel(label)),
      names: gold.label.map((label) => page.fullLabel(label)),
      caption: induces ? `gold tree${sides[side]}` : '',
      appears: ofNodes ? tree.height : new Array(tree.count).fill(0),
      token: (node) => (sequence ? sequence.node.indexOf(node + before) : -1),
      inSequence: example.sequences.length === 1 ? 0 : side,
      explained: example.explanation?.trees?.[side],
    });
    if (sequence?.induced) parts.push(inducedPart(page, sequence, side, `induced tree${sides[side]}`));
  });
  const longest = Math.max(0, ...example.sequences.map((sequence) => sequence.token.length - 1));
  const highest = parts.flatMap((part) => part.appears).reduce((most, step) => Math.max(most, step), 0);
  const steps = ofNodes ? highest + (joint === null ? 0 : 1) : longest;
  return { parts, joint, steps, isReplayed: steps > (ofNodes ? 1 : 0) };
}

function inducedPart(page, sequence, side, caption) {
  const tree = makeTree(sequence.induced);
  const first = new Array(tree.count);
  const last = new Array(tree.count);
  const leaf = new Array(tree.count).fill(-1);
  let tokens = 0;
  for (let node = 0; node < tree.count; node += 1) {
    const children = tree.children[node];
    first[node] = children.length ? first[children[0]] : tokens;
    last[node] = children.length ? last[children.at(-1)] : tokens;
    if (!children.length) leaf[node] = tokens++;
  }
  const word = (token) => page.shortLabel(sequence.token[token]);
  return {
    tree, side, line: side, caption: sequence.f1 === null ? caption : `${caption}, F1 ${sequence.f1} %`,
    labels: leaf.map((token) => (token < 0 ? '' : word(token))),
    names: leaf.map((token, node) => (token < 0 ? `tokens ${first[node] + 1} to ${last[node] + 1}` : word(token))),
    appears: last, token: (node) => leaf[node], inSequence: side,
    words: (node) => sequence.token.slice(first[node], last[node] + 1).map((label) => page.shortLabel(label)).join(' '),
  };
}
