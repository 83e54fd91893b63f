import type { Answer } from '../through-client.ts';

/** What is wrong with a file that was downloaded, in plain words; `text` is what was uploaded. */
export function checkFile({ headers, text: came }: Answer, text: string): string[] {
  const faults: string[] = [];
  if (came !== text) faults.push('the file is not what was uploaded');
  if (headers['content-encoding'] !== undefined) faults.push('the file is compressed');
  if (!/^attachment\b/i.test(headers['content-disposition'] ?? ''))
    faults.push('Content-Disposition is not attachment');
  if (headers['x-content-type-options']?.toString().toLowerCase() !== 'nosniff')
    faults.push('X-Content-Type-Options is not nosniff');
  if (!/\bsandbox\b/.test(headers['content-security-policy']?.toString() ?? ''))
    faults.push('Content-Security-Policy does not say sandbox');
  return faults;
}
