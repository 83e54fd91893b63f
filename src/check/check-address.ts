import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { type Certificate, type CheckConnection, connectTo, hostOf } from './connect-to.ts';
import { adviceFor, codeOf, isTlsCode } from './failure-advice.ts';
import type { Report } from './findings.ts';
import { count } from './print-findings.ts';

/** A certificate that expires sooner than this gets a note, in days: automatic renewal should have replaced it. */
const SOON_DAYS = 14;
const DAY_MS = 24 * 60 * 60 * 1000;

export interface AddressOptions {
  readonly report: Report;
  /** Makes the texts of a certificate safe to print. */
  readonly quote: (text: string) => string;
}

/** Looks up the name of an http or https URL, connects and verifies the certificate. Returns whether all succeeded. */
export async function checkAddress(url: Readonly<URL>, options: AddressOptions): Promise<boolean> {
  return (await checkName(url, options)) && checkConnection(url, options);
}

async function checkName(url: Readonly<URL>, { report }: AddressOptions): Promise<boolean> {
  const host = hostOf(url);
  if (isIP(host) > 0) return true;
  const about = url.host;
  try {
    const addresses = (await lookup(host, { all: true })).map(({ address }) => address);
    const [first] = addresses;
    const others = addresses.length > 1 ? ` and ${addresses.length - 1} more` : '';
    report({ state: 'ok', check: 'name', about, says: `is ${first}${others}` });
    return true;
  } catch (error) {
    const code = codeOf(error);
    report({
      state: 'problem',
      check: 'name',
      about,
      says: `cannot be resolved (${code})`,
      advice: adviceFor(code),
    });
    return false;
  }
}

async function checkConnection(url: Readonly<URL>, { report, quote }: AddressOptions): Promise<boolean> {
  const connection = await connectTo(url);
  const { failure, ms, tls, certificate } = connection;
  const check = url.protocol === 'https:' && (!failure || isTlsCode(failure)) ? 'TLS' : 'connection';
  const about = url.host;
  if (failure !== undefined) {
    const says = `${failureText(connection)}${certificate ? `; ${certificateText(certificate, quote)}` : ''}`;
    report({ state: 'problem', check, about, says, advice: adviceFor(failure) });
    return false;
  }
  const how = certificate ? `${tls}; ${certificateText(certificate, quote)}` : 'not encrypted';
  const says = `connected to ${connection.address} in ${Math.round(ms)} ms, ${how}`;
  const runsOut = certificate !== undefined && daysLeft(certificate) < SOON_DAYS;
  report({
    state: runsOut ? 'note' : 'ok',
    check,
    about,
    says,
    ...(runsOut && { advice: 'The certificate runs out soon: see that it is renewed.' }),
    measured: { connectMs: ms, ...(certificate && { certificateDaysLeft: daysLeft(certificate) }) },
  });
  return true;
}

function failureText({ failure = '', address }: CheckConnection): string {
  return isTlsCode(failure)
    ? `the certificate is not trusted at ${address} (${failure})`
    : `no connection (${failure})`;
}

function certificateText(certificate: Certificate, quote: AddressOptions['quote']): string {
  const { subject, issuer, validTo } = certificate;
  const names = `certificate of ${quote(subject)} by ${quote(issuer)}`;
  const days = Math.floor(Math.abs(daysLeft(certificate)));
  const date = validTo.toISOString().slice(0, 10);
  return daysLeft(certificate) < 0
    ? `${names}, ran out on ${date}`
    : `${names}, valid until ${date} (${count(days, 'day')})`;
}

function daysLeft({ validTo }: Certificate): number {
  return (validTo.getTime() - Date.now()) / DAY_MS;
}
