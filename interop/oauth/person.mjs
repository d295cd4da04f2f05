// The person in front of a browser: signs in, agrees on the consent page, and follows redirects.
import assert from 'node:assert/strict';

/** Consent pages of the server itself that were shown. */
export const shown = { consents: 0 };

/**
 * Signs in, and agrees if the consent page names the client; returns the parameters that the client is called back with at
 * `redirectUrl`.
 */
export async function signIn(start, redirectUrl, client = 'longshore-interop') {
  const cookies = new Map();
  const go = async (where, form) => {
    const answer = await fetch(where, {
      redirect: 'manual',
      method: form ? 'POST' : 'GET',
      body: form && new URLSearchParams(form),
      headers: { cookie: [...cookies].map(([name, value]) => `${name}=${value}`).join('; ') }
    });
    for (const cookie of answer.headers.getSetCookie()) {
      const [name, value] = cookie.split(';')[0].split('=');
      if (value) cookies.set(name, value);
      else cookies.delete(name);
    }
    return answer;
  };
  let where = start;
  let form;
  for (let steps = 0; steps < 20; steps += 1) {
    const answer = await go(where, form);
    form = undefined;
    const next = answer.headers.get('location');
    if (next) {
      where = new URL(next, where);
      if (where.href.startsWith(redirectUrl)) return where.searchParams;
      continue;
    }
    const page = await answer.text();
    const consent = /name=form value="([^"]+)"/.exec(page)?.[1];
    if (consent) {
      assert.ok(page.includes(`${client} wants access`), page);
      where = new URL(/<form[^>]* action="([^"]+)"/.exec(page)[1], where);
      form = { form: consent, decision: 'allow' };
      shown.consents += 1;
      continue;
    }
    const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1];
    const action = /<form[^>]* action="([^"]+)"/.exec(page)?.[1];
    assert.ok(prompt && action, `the provider says: ${answer.status} ${page.slice(0, 300)}`);
    where = new URL(action, where);
    form = prompt === 'login' ? { prompt, login: 'alice', password: 'x' } : { prompt };
  }
  throw new Error('the provider leads in circles');
}
