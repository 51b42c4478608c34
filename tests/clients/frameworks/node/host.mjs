// The host under test, for agent frameworks. Started by ../../run.sh.

export const MODELS = ['local/demo', 'house/responses', 'house/chat', 'house/anthropic'];
export const baseURL = process.env.COFFERDAM_URL;
export const apiKey = process.env.COFFERDAM_KEY;

export const GREETING = 'Good morning, host.';
export const BOTH = 'What is the weather in Paris and London?';

/** A weather function that notes the cities it is called for. */
export function weather() {
  const asked = [];
  const call = ({ city }) => {
    asked.push(city);
    return JSON.stringify({ city, sky: 'clear' });
  };
  return { asked, call };
}

/** Everything that an asynchronous iterator gives. */
export async function all(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}
