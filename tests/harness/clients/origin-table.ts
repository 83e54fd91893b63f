const OWN_ORIGIN = 'http://app.example.com';
/** What a test puts into `ALLOWED_ORIGINS`. */
export const ALLOWED_ORIGIN = 'https://partner.example.org';

const SITES = [
  'same-origin',
  'same-site',
  'cross-site',
  'none',
  undefined,
  'sideways',
  'same-origin, none',
  '',
];
const ORIGINS = [
  OWN_ORIGIN,
  ALLOWED_ORIGIN,
  'https://other.example.net',
  'null',
  'https://app.example.evil',
  'https://app.example.com.evil.net',
  'https://app.example.com',
  'http://app.example.com:8080',
  'http://evil.app.example.com',
  `${OWN_ORIGIN}/`,
  `${OWN_ORIGIN}, ${ALLOWED_ORIGIN}`,
  '',
  undefined,
];

/** Values of `Sec-Fetch-Site` and `Origin`, each with each. */
export const ORIGIN_TABLE = SITES.flatMap((site) => ORIGINS.map((origin) => [site, origin] as const));

/** Whether a request with these headers passes: the documented rule, written in another way than in the code. */
export function passesOriginCheck(site: string | undefined, origin: string | undefined): boolean {
  if (['same-origin', 'none'].includes(site ?? 'missing')) return true;
  if (origin === OWN_ORIGIN || origin === ALLOWED_ORIGIN) return true;
  return site === undefined && origin === undefined;
}

/** The headers of a row of the table. */
export function originHeaders(site: string | undefined, origin: string | undefined): Record<string, string> {
  return {
    ...(site !== undefined && { 'Sec-Fetch-Site': site }),
    ...(origin !== undefined && { Origin: origin }),
  };
}
