/**
 * Gives `parent` these children after its first `kept` ones. Nodes that are equal stay, and with them the focus, a selection
 * and the place in a scrolled box. The browser lays out only what has changed.
 */
export function morphChildren(parent: Node, children: readonly Node[], kept = 0): void {
  let old: ChildNode | null = parent.childNodes[kept] ?? null;
  for (const child of children) {
    const next = old?.nextSibling ?? null;
    if (!old) parent.appendChild(child);
    else if (!becomes(old, child)) parent.replaceChild(child, old);
    old = next;
  }
  while (old) {
    const next = old.nextSibling;
    old.remove();
    old = next;
  }
}

/** Makes `old` equal to `wanted`; returns false if it cannot. */
function becomes(old: ChildNode, wanted: Node): boolean {
  if (old.isEqualNode(wanted)) return true;
  if (old.nodeName !== wanted.nodeName) return false;
  if (old instanceof Text && wanted instanceof Text) {
    // Of a text that grows, only the end is new.
    if (wanted.data.startsWith(old.data)) old.appendData(wanted.data.slice(old.length));
    else old.data = wanted.data;
    return true;
  }
  if (!old.cloneNode(false).isEqualNode(wanted.cloneNode(false))) return false;
  morphChildren(old, [...wanted.childNodes]);
  return true;
}
