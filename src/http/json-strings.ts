import { endOfString } from './json-members.ts';

const QUOTE = 0x22;

/**
 * Replaces strings in `json`, also the names of members: `replace` gets each one without escape sequences. Every other
 * byte stays; the same buffer is returned if nothing changes. `json` must have been parsed before: no syntax is checked
 * here.
 */
export function replaceStrings(json: Buffer, replace: (text: string) => string): Buffer {
  const pieces: Buffer[] = [];
  let from = 0;
  for (let at = json.indexOf(QUOTE), end = 0; at >= 0; at = json.indexOf(QUOTE, end)) {
    end = endOfString(json, at);
    const text = JSON.parse(json.toString('utf8', at, end)) as string;
    const replaced = replace(text);
    if (replaced === text) continue;
    pieces.push(json.subarray(from, at), Buffer.from(JSON.stringify(replaced)));
    from = end;
  }
  return pieces.length > 0 ? Buffer.concat([...pieces, json.subarray(from)]) : json;
}
