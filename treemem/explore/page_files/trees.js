// Trees from their nodes in post-order, and where their nodes stand in a picture.

/** A tree with what follows from the number of children of each node, which are in post-order. */
function makeTree(arity) {
  const count = arity.length;
  const tree = { count, arity, children: new Array(count), parent: new Array(count).fill(-1), height: new Array(count), size: new Array(count), depth: new Array(count).fill(0) };
  const open = [];
  for (let node = 0; node < count; node += 1) {
    const children = arity[node] ? open.splice(open.length - arity[node]) : [];
    tree.children[node] = children;
    tree.height[node] = 0;
    tree.size[node] = 1;
    for (const child of children) {
      tree.parent[child] = node;
      tree.height[node] = Math.max(tree.height[node], tree.height[child] + 1);
      tree.size[node] += tree.size[child];
    }
    open.push(node);
  }
  for (let node = count - 2; node >= 0; node -= 1) tree.depth[node] = tree.depth[tree.parent[node]] + 1;
  return tree;
}

const GAP = 14;

/**
 * How far right each node stands, so that subtrees lie as near each other as their outlines let them.
 *
 * The outline of a subtree is kept from its deepest level up, as where it begins and ends on each level; of two
 * outlines the deeper is carried on, so that a tree takes time in its number of nodes.
 */
function placeNodes(tree, widths) {
  const outlines = new Array(tree.count);
  const offset = new Array(tree.count).fill(0);
  for (let node = 0; node < tree.count; node += 1) {
    let all = null;
    for (const child of tree.children[node]) {
      const own = outlines[child];
      outlines[child] = null;
      if (all === null) {
        all = own;
        continue;
      }
      const levels = Math.min(all.left.length, own.left.length);
      let apart = -Infinity;
      for (let down = 1; down <= levels; down += 1) {
        const gap = all.right.at(-down) + all.shift - own.left.at(-down) - own.shift;
        apart = Math.max(apart, gap);
      }
      offset[child] = apart + GAP;
      own.shift += offset[child];
      const [kept, other] = all.left.length >= own.left.length ? [all, own] : [own, all];
      const otherSide = kept === all ? 'right' : 'left';
      for (let down = 1; down <= levels; down += 1) {
        const at = kept.left.length - down;
        kept[otherSide][at] = other[otherSide].at(-down) + other.shift - kept.shift;
      }
      all = kept;
    }
    const half = widths[node] / 2;
    const children = tree.children[node];
    const middle = children.length ? (offset[children[0]] + offset[children.at(-1)]) / 2 : 0;
    for (const child of children) offset[child] -= middle;
    if (all === null) all = { left: [], right: [], shift: 0 };
    all.shift -= middle;
    all.left.push(-half - all.shift);
    all.right.push(half - all.shift);
    outlines[node] = all;
  }
  const x = new Array(tree.count);
  let low = Infinity;
  let high = -Infinity;
  for (let node = tree.count - 1; node >= 0; node -= 1) {
    x[node] = (tree.parent[node] < 0 ? 0 : x[tree.parent[node]]) + offset[node];
    low = Math.min(low, x[node] - widths[node] / 2);
    high = Math.max(high, x[node] + widths[node] / 2);
  }
  return { x: x.map((place) => place - low), width: high - low };
}
