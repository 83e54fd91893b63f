/** The class of HTML elements. On a server, which has none, a class that does nothing, so that pages can be rendered there. */
export const ElementBase: typeof HTMLElement =
  typeof HTMLElement === 'function' ? HTMLElement : Object(class {});
