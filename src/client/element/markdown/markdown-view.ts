import { type Begun, begunOf, goesOn, NOT_BEGUN } from './begun.ts';
import { type BlockWords, blockElement } from './blocks.ts';
import { whatIsLoading } from './drawn-later.ts';
import { type Links, type MarkedToken, parseMarkdown } from './lexer.ts';
import { morphChildren } from './morph.ts';

/** The pause after a drawing, as a multiple of the time that it took. The page needs time for other work. */
const REST = 2;

/** The beginning of a link at the end of a text. A longer one is shown as it came. */
const OPEN_LINK = /\[[^\]\n]{0,200}(?:\](?:\([^)\s]{0,500})?)?$/;
/** More characters than such a beginning has. */
const LONGEST_LINK = 800;

/** Shows `text`, which does not grow any more if it `isWhole`. */
export type ShowMarkdown = (text: string, isWhole: boolean) => void;

/** The beginning of a text that the text after it cannot change. */
interface Settled {
  readonly length: number;
  /** The number of elements that show it. */
  readonly elements: number;
  /** The reference links that it defines. */
  readonly links: Links;
  /** The beginning of the block after it that cannot change either. */
  readonly begun: Begun;
}

const NOTHING: Settled = { length: 0, elements: 0, links: {}, begun: NOT_BEGUN };

/** Makes the function that shows a text in `root`. Of a text that grows, only the end is parsed again. */
export function markdownView(root: HTMLElement, words: BlockWords): ShowMarkdown {
  let settled = NOTHING;
  let before = '';
  let next = { text: '', isWhole: false };
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isWaiting = false;
  let restUntil = 0;
  function draw(): void {
    clearTimeout(timer);
    timer = undefined;
    const began = performance.now();
    const { text, isWhole } = next;
    if (!text.startsWith(before)) settled = NOTHING;
    before = text;
    try {
      settled = drawn(root, { text, settled, words });
      // A link can be defined below the text that uses it, so all is parsed again.
      if (isWhole && text.includes(']:')) settled = drawn(root, { text, settled: NOTHING, words });
    } catch {
      // A text that is too much for the parser or the page is shown as it came.
      root.textContent = text;
      settled = NOTHING;
    }
    const now = performance.now();
    restUntil = now + REST * (now - began);
    drawAgainWhenLoaded();
  }
  /** What is loaded now may draw some of this text. */
  function drawAgainWhenLoaded(): void {
    const coming = isWaiting ? undefined : whatIsLoading();
    if (!coming) return;
    isWaiting = true;
    void coming.then(() => {
      isWaiting = false;
      settled = NOTHING;
      draw();
    });
  }
  return (text, isWhole) => {
    const lines = text.replace(/\r\n?/g, '\n');
    next = { text: isWhole ? lines : withoutOpenLink(lines), isWhole };
    const rest = restUntil - performance.now();
    if (isWhole || rest <= 0) draw();
    else timer ??= setTimeout(draw, rest);
  };
}

/** The text up to a link of which the rest has not come yet: its address is not for readers. */
function withoutOpenLink(text: string): string {
  const end = text.slice(-LONGEST_LINK);
  return text.slice(0, text.length - end.length) + end.replace(OPEN_LINK, '');
}

interface Drawing {
  readonly text: string;
  readonly settled: Settled;
  readonly words: BlockWords;
}

/** Shows the text after its settled beginning, and returns what is settled now. */
function drawn(root: HTMLElement, drawing: Drawing): Settled {
  const { text, settled, words } = drawing;
  const { begun } = settled;
  const rest = begun.head + text.slice(settled.length + begun.length);
  const blocks = parseMarkdown(rest, settled.links, begun.type === 'code' ? '' : begun.text);
  if (!goesOn(blocks[0], begun))
    return drawn(root, { ...drawing, settled: { ...settled, begun: NOT_BEGUN } });
  const elements = blocks.map((block, at) => blockElement(block, words, at === 0 ? begun.text : ''));
  const shown = elements.flatMap((element) => element ?? []);
  const first = begun.type && shown.shift();
  if (first) showMore(root.children[settled.elements] ?? first, first, begun);
  morphChildren(root, shown, settled.elements + (first ? 1 : 0));
  return nowSettled(drawing, blocks, elements);
}

/** Shows the rest of a block after its beginning. The element `rest` shows the rest alone. */
function showMore(block: Element, rest: Element, { nodes, isLoose }: Begun): void {
  const [to, from] = [block, rest].map(
    // The element with the rows of a table, the text of code or of a quotation, or the items of a list.
    (element) => element.querySelector(':scope > table > tbody, :scope > pre > code, :scope > p') ?? element,
  );
  if (to && from) morphChildren(to, [...from.childNodes].slice(isLoose ? 1 : 0), nodes);
}

/** What is settled now that `blocks` were parsed after the settled beginning. */
function nowSettled(
  { text, settled }: Drawing,
  blocks: readonly MarkedToken[],
  shown: readonly unknown[],
): Settled {
  const own = [...blocks.keys()].filter((at) => blocks[at]?.type !== 'space');
  const last = own.at(-1) ?? 0;
  const begun = blocks[last] && begunOf(blocks[last], last === 0 ? settled.begun : NOT_BEGUN);
  // The last two blocks are not settled: in `1. a`, an empty line, `2`, the last one may become an item of the list.
  const end = begun ? last : (own.at(-2) ?? 0);
  let { length, elements, links, begun: before } = settled;
  for (const [at, block] of blocks.slice(0, end).entries()) {
    const raw = block.raw.slice(before.head.length);
    if (!text.startsWith(raw, length + before.length)) return { length, elements, links, begun: before };
    length += before.length + raw.length;
    before = NOT_BEGUN;
    if (shown[at]) elements += 1;
    if (block.type === 'def') links = { [block.tag]: block, ...links };
  }
  return { length, elements, links, begun: begun ?? before };
}
