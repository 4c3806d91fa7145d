// The icicle's trees: modules by their parents, Python stacks by their frames. Every kind of block belongs to one node.

import { baseName, frameText, moduleLabel, text, type Report } from "./data";

export interface TreeNode {
  parent: number;
  children: number[];
  label: string; // short: the last part of the name
  full: string;
}

export interface NodeTree {
  nodes: TreeNode[]; // 0 is the root
  ofKind: Int32Array; // node of each kind of block
  enter: Int32Array; // in depth-first order: below n are the nodes with enter[n] <= enter[.] < leave[n]
  leave: Int32Array;
}

function finish(nodes: TreeNode[], ofKind: Int32Array): NodeTree {
  const enter = new Int32Array(nodes.length), leave = new Int32Array(nodes.length);
  let clock = 0;
  const open: [number, number][] = [[0, 0]];
  enter[0] = clock++;
  while (open.length > 0) {
    const top = open[open.length - 1]!;
    const child = nodes[top[0]]!.children[top[1]++];
    if (child === undefined) {
      leave[top[0]] = clock;
      open.pop();
    } else {
      enter[child] = clock++;
      open.push([child, 0]);
    }
  }
  return { nodes, ofKind, enter, leave };
}

export const isBelow = (tree: NodeTree, node: number, ancestor: number): boolean =>
  tree.enter[node]! >= tree.enter[ancestor]! && tree.enter[node]! < tree.leave[ancestor]!;

export function moduleTree(report: Report): NodeTree {
  const nodes: TreeNode[] = [{ parent: -1, children: [], label: "everything", full: "everything allocated" }];
  const ofModule = new Int32Array(report.module.count).fill(-1);
  const add = (module: number): number => {
    if (ofModule[module]! >= 0) return ofModule[module]!;
    ofModule[module] = 0; // stops at a parent that is its own child
    const parentModule = report.module.parent[module]!;
    const parent = parentModule >= 0 ? add(parentModule) : 0;
    const name = text(report, report.module.name[module]!), above = parentModule >= 0 ? text(report, report.module.name[parentModule]!) : "";
    const label = name ? (above && name.startsWith(`${above}.`) ? name.slice(above.length + 1) : name) : text(report, report.module.type[module]!) || "the model";
    nodes.push({ parent, children: [], label, full: moduleLabel(report, module) });
    nodes[parent]!.children.push(nodes.length - 1);
    return (ofModule[module] = nodes.length - 1);
  };
  for (let module = 0; module < report.module.count; ++module) add(module);
  const ofKind = new Int32Array(report.kind.count);
  let outside = -1;
  for (let k = 0; k < report.kind.count; ++k) {
    const module = report.kind.module[k]!;
    if (module >= 0) {
      ofKind[k] = ofModule[module]!;
      continue;
    }
    if (outside < 0) {
      nodes.push({ parent: 0, children: [], label: "outside of modules", full: "allocated outside of every module, or for none that is known" });
      outside = nodes.length - 1;
      nodes[0]!.children.push(outside);
    }
    ofKind[k] = outside;
  }
  return finish(nodes, ofKind);
}

export function stackTree(report: Report): NodeTree {
  const nodes: TreeNode[] = [{ parent: -1, children: [], label: "everything", full: "everything allocated" }];
  const known = new Map<number, Map<number, number>>();
  const child = (parent: number, frame: number): number => {
    let below = known.get(parent);
    if (!below) known.set(parent, (below = new Map()));
    let node = below.get(frame);
    if (node === undefined) {
      const label = frame < 0 ? "no stack recorded" : "";
      const { file, line, name } = frame < 0 ? { file: "", line: 0, name: "" } : frameText(report, frame);
      nodes.push({ parent, children: [], label: label || `${name} ${baseName(file)}:${line}`, full: label || `${name}, ${file}:${line}` });
      below.set(frame, (node = nodes.length - 1));
      nodes[parent]!.children.push(node);
    }
    return node;
  };
  const stacks = report.stack.begin.length - 1;
  const ofStack = new Int32Array(stacks);
  for (let s = 0; s < stacks; ++s) {
    let node = 0;
    // Outermost first.
    for (let i = report.stack.begin[s + 1]! - 1; i >= report.stack.begin[s]!; --i) node = child(node, report.stack.frames[i]!);
    ofStack[s] = node;
  }
  const ofKind = new Int32Array(report.kind.count);
  for (let k = 0; k < report.kind.count; ++k) {
    const stack = report.kind.stack[k]!;
    ofKind[k] = stack >= 0 && report.stack.begin[stack + 1]! > report.stack.begin[stack]! ? ofStack[stack]! : child(0, -1);
  }
  return finish(nodes, ofKind);
}
