//! The JSON interface: buckets, objects, listings, copies.

use super::{
    State,
    serve::{Refusal, Reply, SimRequest, refuse},
    space::{Object, bucket_facts, unmet},
};
use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use serde_json::{Value, json};
use std::ops::Bound::{Excluded, Included, Unbounded};

impl State {
    /// Answers a request about buckets or objects.
    ///
    /// Errors: the refusal.
    pub fn json(&mut self, kind: &'static str, sim_request: &SimRequest) -> Result<Reply, Refusal> {
        let below: Vec<&str> = sim_request.place().1.iter().map(String::as_str).collect();
        match (kind, &below[..]) {
            ("buckets", _) => self.buckets(sim_request),
            ("bucket.create", _) => {
                let facts = sim_request.facts()?;
                let name = facts["name"].as_str().unwrap_or_default();
                if name.is_empty() || sim_request.param("project").is_empty() {
                    return Err(refuse(400, "required", "Required parameter: project"));
                }
                if !self.space.create(name) {
                    let message = "Your previous request to create the named bucket succeeded and you already own it.";
                    return Err(refuse(409, "conflict", message));
                }
                sim_request.json_reply(&bucket_facts(sim_request.host(), name, self.space.bucket(name)?))
            }
            ("bucket.get", ["b", name]) => {
                sim_request.json_reply(&bucket_facts(sim_request.host(), name, self.space.bucket(name)?))
            }
            ("bucket.delete", ["b", name]) => {
                if !self.space.bucket(name)?.objects.is_empty() {
                    return Err(refuse(409, "conflict", "The bucket you tried to delete is not empty."));
                }
                self.space.buckets.remove(*name);
                Ok(Reply::empty(204))
            }
            ("list", ["b", bucket, _]) => self.list(sim_request, bucket),
            (_, ["b", bucket, "o", name]) => self.object(kind, sim_request, bucket, name),
            ("rewrite" | "copy", ["b", from, _, name, _, _, to, _, new]) => {
                self.rewrite(sim_request, (from, name), (to, new), kind == "rewrite")
            }
            _ => Err(refuse(404, "notFound", "Not Found")),
        }
    }

    fn buckets(&self, sim_request: &SimRequest) -> Result<Reply, Refusal> {
        let prefix = sim_request.param("prefix");
        let found = self.space.buckets.iter().filter(|(name, _)| name.starts_with(prefix));
        let items: Vec<Value> = found.map(|(name, bucket)| bucket_facts(sim_request.host(), name, bucket)).collect();
        sim_request.json_reply(&json!({ "kind": "storage#buckets", "items": items }))
    }

    fn list(&self, sim_request: &SimRequest, bucket: &str) -> Result<Reply, Refusal> {
        let objects = &self.space.bucket(bucket)?.objects;
        let bad = |name: &str| refuse(400, "invalid", &format!("Invalid argument: {name}"));
        let most: usize = match sim_request.param("maxResults") {
            "" => 1000,
            text => text.parse().map_err(|_| bad("maxResults"))?,
        };
        let most = most.min(1000);
        let (prefix, delimiter) = (sim_request.param("prefix"), sim_request.param("delimiter"));
        let (start, end) = (sim_request.param("startOffset"), sim_request.param("endOffset"));
        let token = B64.decode(sim_request.param("pageToken")).ok().and_then(|token| String::from_utf8(token).ok());
        let token = token.ok_or_else(|| bad("pageToken"))?;
        let after =
            |name: &str| token.is_empty() || name > &*token && !(is_cut(&token, delimiter) && name.starts_with(&token));
        let (mut items, mut prefixes, mut next, mut last) = (Vec::new(), Vec::<String>::new(), None, String::new());
        let mut from = Included([prefix, start, &token].into_iter().max().unwrap_or_default().to_owned());
        while let Some((name, object)) = objects.range::<String, _>((from.as_ref(), Unbounded)).next() {
            let is_in = name.starts_with(prefix) && (end.is_empty() || &**name < end);
            if !is_in {
                break;
            }
            from = Excluded(name.clone());
            if &**name < start || !after(name) {
                continue;
            }
            if items.len() + prefixes.len() == most {
                next = Some(B64.encode(&last));
                break;
            }
            let cut = name[prefix.len()..].find(delimiter).filter(|_| !delimiter.is_empty());
            match cut.map(|at| &name[..prefix.len() + at + delimiter.len()]) {
                Some(folder) => {
                    prefixes.push(folder.to_owned());
                    last = folder.to_owned();
                    // All else in it is told with it.
                    from = Included(format!("{folder}\u{10ffff}"));
                }
                None => {
                    items.push(object.facts(sim_request.host(), bucket, name));
                    last.clone_from(name);
                }
            }
        }
        let mut answer = json!({ "kind": "storage#objects" });
        if !items.is_empty() {
            answer["items"] = items.into();
        }
        if !prefixes.is_empty() {
            answer["prefixes"] = prefixes.into();
        }
        if let Some(next) = next {
            answer["nextPageToken"] = next.into();
        }
        sim_request.json_reply(&answer)
    }

    fn object(
        &mut self,
        kind: &'static str,
        sim_request: &SimRequest,
        bucket: &str,
        name: &str,
    ) -> Result<Reply, Refusal> {
        let object = self.space.object(bucket, name, sim_request.param("generation"))?.clone();
        for (parameter, now) in
            [("ifGenerationMatch", object.generation), ("ifMetagenerationMatch", object.metageneration)]
        {
            let wanted = sim_request.param(parameter);
            if !wanted.is_empty() && wanted != now.to_string() {
                return Err(unmet());
            }
        }
        match kind {
            "get" => sim_request.json_reply(&object.facts(sim_request.host(), bucket, name)),
            "media" => media(sim_request, &object),
            "delete" => {
                self.space.remove(bucket, name);
                Ok(Reply::empty(204))
            }
            "patch" | "update" => {
                let mut object = object;
                object.describe(&sim_request.facts()?, kind == "patch")?;
                object.metageneration += 1;
                object.updated = jiff::Timestamp::now();
                let facts = object.facts(sim_request.host(), bucket, name);
                if let Some(bucket) = self.space.buckets.get_mut(bucket) {
                    bucket.objects.insert(name.to_owned(), object);
                }
                sim_request.json_reply(&facts)
            }
            _ => Err(refuse(404, "notFound", "Not Found")),
        }
    }

    fn rewrite(
        &mut self,
        sim_request: &SimRequest,
        from: (&str, &str),
        to: (&str, &str),
        in_steps: bool,
    ) -> Result<Reply, Refusal> {
        let mut object = self.space.object(from.0, from.1, sim_request.param("sourceGeneration"))?.clone();
        let wanted = sim_request.param("ifSourceGenerationMatch");
        if !wanted.is_empty() && wanted != object.generation.to_string() {
            return Err(unmet());
        }
        self.space.meets(to.0, to.1, sim_request.param("ifGenerationMatch"))?;
        let size = object.size;
        let mut answer = json!({ "kind": "storage#rewriteResponse", "objectSize": size.to_string() });
        if in_steps {
            let token = sim_request.param("rewriteToken");
            let copied = match token {
                "" => 0,
                token => *self.rewriting.get(token).ok_or_else(|| refuse(400, "invalid", "Invalid rewrite token"))?,
            };
            let copied = size.min(copied + self.settings.rewrites);
            answer["totalBytesRewritten"] = copied.to_string().into();
            if copied < size {
                // A rewrite has one token from its beginning to its end.
                let next = match token {
                    "" => format!("rewrite-{}", self.space.count()),
                    token => token.to_owned(),
                };
                self.rewriting.insert(next.clone(), copied);
                (answer["done"], answer["rewriteToken"]) = (false.into(), next.into());
                return sim_request.json_reply(&answer);
            }
            self.rewriting.remove(token);
        }
        let facts = sim_request.facts()?;
        if facts.as_object().is_some_and(|facts| !facts.is_empty()) {
            object.describe(&facts, false)?;
        }
        (object.created, object.updated, object.metageneration) = (jiff::Timestamp::now(), jiff::Timestamp::now(), 1);
        let object = self.space.put(to.0, to.1, object)?;
        let facts = object.facts(sim_request.host(), to.0, to.1);
        if !in_steps {
            return sim_request.json_reply(&facts);
        }
        (answer["done"], answer["resource"]) = (true.into(), facts);
        sim_request.json_reply(&answer)
    }
}

fn is_cut(token: &str, delimiter: &str) -> bool {
    !delimiter.is_empty() && token.ends_with(delimiter)
}

/// The content, or a range of it.
fn media(sim_request: &SimRequest, object: &Object) -> Result<Reply, Refusal> {
    let size = object.size;
    let range = sim_request
        .header("range")
        .and_then(|range| range.strip_prefix("bytes="))
        .and_then(|range| range.split_once('-'));
    let (status, from, to) = match range.map(|(first, last)| (first.parse::<u64>(), last.parse::<u64>())) {
        None => (200, 0, size),
        Some((Ok(first), last)) => (206, first, last.map_or(size, |last| size.min(last + 1))),
        Some((Err(_), Ok(tail))) => (206, size.saturating_sub(tail), size),
        _ => return Err(refuse(400, "invalid", "Range")),
    };
    if status == 206 && from >= size {
        return Err(Box::new(Reply::empty(416).with("content-range", format!("bytes */{size}"))));
    }
    let mut reply = Reply { body: object.range(from, to), ..Reply::empty(status) };
    if status == 206 {
        reply = reply.with("content-range", format!("bytes {from}-{}/{size}", to - 1));
    }
    for (name, header) in super::space::PROPERTIES {
        if let Some(value) = object.properties.get(name) {
            reply = reply.with(header, value);
        }
    }
    if let Some(encoding) = object.properties.get("contentEncoding") {
        reply = reply.with("x-goog-stored-content-encoding", encoding);
    }
    let date = object.updated.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    reply = reply.with("last-modified", date).with("x-goog-generation", object.generation.to_string());
    reply = reply.with("x-goog-metageneration", object.metageneration.to_string());
    reply = reply.with("x-goog-stored-content-length", size.to_string());
    reply = reply.with("x-goog-hash", format!("crc32c={}", object.crc32c));
    if let Some(md5) = &object.md5 {
        reply = reply.with("x-goog-hash", format!("md5={md5}"));
    }
    for (name, value) in &object.metadata {
        reply = reply.with(&format!("x-goog-meta-{name}"), value);
    }
    Ok(reply)
}
