// Keeps a page of `ascot dash` current: fetches the parts that change once a second, and puts what differs into the
// page, so that the focus, the place in a table and the reading of a screen reader stay. Sends requests of the user.
'use strict';
(() => {
const PAUSE = 1000;
const element = (id) => document.getElementById(id);

// Makes `old` like `made`. An open disclosure stays open.
const morph = (old, made) => {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) { old.replaceWith(made); return; }
  if (old.nodeType !== Node.ELEMENT_NODE) { if (old.data !== made.data) old.data = made.data; return; }
  for (const {name, value} of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const {name} of [...old.attributes]) if (name !== 'open' && !made.hasAttribute(name)) old.removeAttribute(name);
  children(old, made);
};
const children = (old, made) => {
  const mine = [...old.childNodes];
  [...made.childNodes].forEach((one, at) => { if (at < mine.length) morph(mine[at], one); else old.append(one); });
  mine.slice(made.childNodes.length).forEach((one) => one.remove());
};

const say = (id, text) => { if (element(id) && element(id).textContent !== text) element(id).textContent = text; };

const refresh = async () => {
  try {
    const answer = await fetch(document.body.dataset.parts);
    if (!answer.ok) throw new Error(answer.status === 404 ? 'this job is not listed any more' : answer.statusText);
    for (const [name, html] of Object.entries(await answer.json())) {
      const made = document.createElement('template');
      made.innerHTML = html;
      if (element(`part-${name}`)) children(element(`part-${name}`), made.content);
    }
    say('word', '');
    window.refreshed = (window.refreshed || 0) + 1;
  } catch (error) {
    say('word', `This page is not current: ${error.message}`);
  }
  setTimeout(refresh, PAUSE);
};

const send = async (what) => {
  const body = {job: document.body.dataset.job};
  for (const field of document.querySelectorAll('#control [name]')) body[field.name] = field.value;
  const headers = {'Content-Type': 'application/json', 'Authorization': `Bearer ${element('token').value}`};
  try {
    const answer = await fetch(`/control/${what}`, {method: 'POST', headers, body: JSON.stringify(body)});
    say('answer', (await answer.json()).said);
  } catch (error) {
    say('answer', `The request was not sent: ${error.message}`);
  }
};

if (element('token')) {
  element('token').value = sessionStorage.getItem('token') || '';
  element('token').addEventListener('change', () => sessionStorage.setItem('token', element('token').value));
}
document.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-do]');
  if (button) send(button.dataset.do);
});
setTimeout(refresh, PAUSE);
})();
