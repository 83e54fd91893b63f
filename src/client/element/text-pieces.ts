/**
 * Cuts `text` into pieces of at most `longest` characters: at the last end of a line or, where a line is longer, behind
 * the last space or, where a word is longer, in the word. Joined, the pieces are the text.
 */
export function textPieces(text: string, longest: number): string[] {
  const pieces: string[] = [];
  let from = 0;
  while (text.length - from > longest) {
    const piece = text.slice(from, from + longest);
    const cut = (piece.lastIndexOf('\n') + 1 || piece.lastIndexOf(' ') + 1 || longest) + from;
    // Both halves of one character stay together.
    const end = /[\ud800-\udbff]/.test(text.charAt(cut - 1)) ? cut - 1 : cut;
    pieces.push(text.slice(from, end));
    from = end;
  }
  return [...pieces, text.slice(from)];
}
