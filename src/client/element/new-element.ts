type Child = Node | string;

/**
 * A new element with these attributes and children. Of many children, give the list itself: a call takes only so many
 * arguments. A text is never read as HTML.
 */
export function newElement<K extends keyof HTMLElementTagNameMap>(
  name: K,
  attributes: Readonly<Record<string, string>> = {},
  ...children: readonly (Child | readonly Child[])[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(name);
  for (const child of children.flat()) element.append(child);
  // After the children: with `dir="auto"`, Chromium reads all of them again at each new one.
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  return element;
}
