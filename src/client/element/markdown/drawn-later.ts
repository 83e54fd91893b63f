/** Makes nodes of a text; throws if it cannot. `kind` is the language of code, or how math stands. */
export type Draw = (text: string, kind: string) => Node;

/** How many texts are remembered: the end of an answer that grows is drawn again and again. */
const REMEMBERED = 200;

const loading = new Set<Promise<void>>();

/**
 * Draws by what is loaded with the first text. Returns undefined until then, for texts of more than `longest` characters,
 * and for those that cannot be drawn; so also if it cannot be loaded, as while the relay is replaced by another version.
 */
export function drawnLater(load: () => Promise<Draw>, longest: number) {
  let draw: Draw | undefined;
  let isAsked = false;
  const drawn = new Map<string, Node | undefined>();
  function ask(): void {
    isAsked = true;
    const coming = load().then(
      (loaded) => {
        draw = loaded;
      },
      () => undefined,
    );
    loading.add(coming);
    void coming.then(() => loading.delete(coming));
  }
  return (text: string, kind: string): Node | undefined => {
    if (text.length > longest) return undefined;
    if (!isAsked) ask();
    if (!draw) return undefined;
    const key = `${kind}\n${text}`;
    if (!drawn.has(key)) {
      if (drawn.size >= REMEMBERED) drawn.clear();
      drawn.set(key, orUndefined(draw, text, kind));
    }
    return drawn.get(key)?.cloneNode(true);
  };
}

function orUndefined(draw: Draw, text: string, kind: string): Node | undefined {
  try {
    return draw(text, kind);
  } catch {
    return undefined;
  }
}

/** Ends when all that is being loaded is there, or cannot be had; undefined if nothing is. */
export function whatIsLoading(): Promise<unknown> | undefined {
  return loading.size > 0 ? Promise.all(loading) : undefined;
}
